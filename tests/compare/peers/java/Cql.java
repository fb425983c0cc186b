import com.datastax.driver.core.Cluster;
import com.datastax.driver.core.HostDistance;
import com.datastax.driver.core.PoolingOptions;
import com.datastax.driver.core.PreparedStatement;
import com.datastax.driver.core.Session;

/** The DataStax driver: see ../README.md. */
final class Cql {
    private Cql() {}

    public static void main(String[] words) throws InterruptedException {
        String[] address = words[0].split(":");
        int connections = words.length > 1 ? Integer.parseInt(words[1]) : 1;
        // As the others: connections with room for all requests.
        PoolingOptions pooling = new PoolingOptions()
            .setConnectionsPerHost(HostDistance.LOCAL, connections, connections)
            .setMaxRequestsPerConnection(HostDistance.LOCAL, 32_768)
            .setMaxQueueSize(2_048);
        Cluster.Builder building = Cluster.builder()
            .addContactPoint(address[0])
            .withPort(Integer.parseInt(address[1]))
            .withPoolingOptions(pooling)
            .withoutJMXReporting();
        if (words.length > 2) {
            // Its authority is that of the virtual machine.
            building = building.withSSL();
        }
        Session session = building.build().connect();
        PreparedStatement statement = session.prepare("SELECT release_version FROM system.local");
        Peer.run(() -> session.execute(statement.bind()).one().getString(0));
    }
}
