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
        // As the others: one connection, with room for all requests.
        PoolingOptions pooling = new PoolingOptions()
            .setConnectionsPerHost(HostDistance.LOCAL, 1, 1)
            .setMaxRequestsPerConnection(HostDistance.LOCAL, 32_768)
            .setMaxQueueSize(2_048);
        Cluster cluster = Cluster.builder()
            .addContactPoint(address[0])
            .withPort(Integer.parseInt(address[1]))
            .withPoolingOptions(pooling)
            .withoutJMXReporting()
            .build();
        Session session = cluster.connect();
        PreparedStatement statement = session.prepare("SELECT release_version FROM system.local");
        Peer.run(() -> session.execute(statement.bind()).one().getString(0));
    }
}
