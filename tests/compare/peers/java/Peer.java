import java.util.Arrays;
import java.util.Locale;
import java.util.Scanner;
import java.util.stream.LongStream;

/** Runs the rounds of a client: see ../README.md. */
final class Peer {
    private Peer() {}

    /** Sends one command, and then those of each round. */
    static void run(Runnable command) throws InterruptedException {
        command.run();
        System.out.println("ready");
        Scanner input = new Scanner(System.in);
        while (input.hasNextInt()) {
            round(command, input.nextInt(), input.nextLong() * 1_000_000);
        }
        // The driver has threads that would keep the process running.
        System.exit(0);
    }

    private static void round(Runnable command, int tasks, long durationNs) throws InterruptedException {
        long begun = System.nanoTime();
        long[][] waits = new long[tasks][];
        Thread[] running = new Thread[tasks];
        for (int task = 0; task < tasks; task++) {
            int number = task;
            running[task] = new Thread(() -> waits[number] = work(command, begun + durationNs));
            running[task].start();
        }
        for (Thread thread : running) {
            thread.join();
        }
        double seconds = (System.nanoTime() - begun) / 1e9;
        long[] all = Arrays.stream(waits).flatMapToLong(LongStream::of).sorted().toArray();
        double p50 = all[(int) (0.5 * (all.length - 1))] / 1e3;
        double p99 = all[(int) (0.99 * (all.length - 1))] / 1e3;
        System.out.printf(Locale.ROOT, "%d %f %f %f%n", all.length, seconds, p50, p99);
    }

    private static long[] work(Runnable command, long end) {
        long[] waits = new long[1024];
        int count = 0;
        for (long start = System.nanoTime(); start < end; ) {
            command.run();
            long now = System.nanoTime();
            if (count == waits.length) {
                waits = Arrays.copyOf(waits, 2 * count);
            }
            waits[count++] = now - start;
            start = now;
        }
        return Arrays.copyOf(waits, count);
    }
}
