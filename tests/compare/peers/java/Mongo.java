import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoDatabase;
import org.bson.Document;

/** The official Java driver: see ../README.md. */
final class Mongo {
    private Mongo() {}

    public static void main(String[] words) throws InterruptedException {
        MongoClient client = MongoClients.create("mongodb://" + words[0]);
        MongoDatabase admin = client.getDatabase("admin");
        Peer.run(() -> admin.runCommand(new Document("ping", 1)).get("ok"));
    }
}
