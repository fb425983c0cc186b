import java.util.Arrays;
import java.util.Locale;
import java.util.Scanner;
import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.LongStream;

/** Runs the rounds of a client: see ../README.md. */
final class Peer {
    private Peer() {}

    /** Sends one command, and then those of each round. */
    static void run(Runnable command) throws InterruptedException {
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        });
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
        AtomicLong begun = new AtomicLong();
        CyclicBarrier barrier = new CyclicBarrier(tasks, () -> begun.set(System.nanoTime()));
        long[][] waits = new long[tasks][];
        Thread[] running = new Thread[tasks];
        for (int task = 0; task < tasks; task++) {
            int number = task;
            running[task] = new Thread(() -> {
                try {
                    barrier.await();
                } catch (InterruptedException | BrokenBarrierException error) {
                    throw new IllegalStateException(error);
                }
                waits[number] = work(command, begun.get() + durationNs);
            });
            running[task].start();
        }
        for (Thread thread : running) {
            thread.join();
        }
        double seconds = (System.nanoTime() - begun.get()) / 1e9;
        System.out.printf(Locale.ROOT, "%d %f%n", Arrays.stream(waits).mapToInt(some -> some.length).sum(), seconds);
        long[] all = Arrays.stream(waits).flatMapToLong(LongStream::of).sorted().toArray();
        double p50 = all[(int) (0.5 * (all.length - 1))] / 1e3;
        double p99 = all[(int) (0.99 * (all.length - 1))] / 1e3;
        System.out.printf(Locale.ROOT, "%f %f%n", p50, p99);
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
