/* Pings by libmongoc: see ../README.md. */
#include <mongoc/mongoc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS_MAX = 1024 };

static mongoc_client_pool_t *pool;
static double end;

/* The times of a thread's commands, in microseconds. */
struct waits {
    double *us;
    size_t count, room;
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double) time.tv_sec + (double) time.tv_nsec / 1e9;
}

static void fail(const char *why)
{
    fprintf(stderr, "%s\n", why);
    exit(1);
}

static void ping(void)
{
    bson_t command = BSON_INITIALIZER, reply;
    bson_error_t error;
    BSON_APPEND_INT32(&command, "ping", 1);
    mongoc_client_t *client = mongoc_client_pool_pop(pool);
    if (!mongoc_client_command_simple(client, "admin", &command, NULL, &reply, &error)) {
        fail(error.message);
    }
    mongoc_client_pool_push(pool, client);
    bson_destroy(&reply);
    bson_destroy(&command);
}

static void *work(void *argument)
{
    struct waits *waits = argument;
    for (double start = now(); start < end;) {
        ping();
        double done = now();
        if (waits->count == waits->room) {
            waits->room = 2 * waits->room + 1024;
            waits->us = realloc(waits->us, waits->room * sizeof *waits->us);
            if (!waits->us) {
                fail("no memory");
            }
        }
        waits->us[waits->count++] = (done - start) * 1e6;
        start = done;
    }
    return NULL;
}

static int compare(const void *one, const void *other)
{
    double difference = *(const double *) one - *(const double *) other;
    return (difference > 0) - (difference < 0);
}

static void round_of(long threads, long milliseconds)
{
    static pthread_t running[THREADS_MAX];
    static struct waits waits[THREADS_MAX];
    double begun = now();
    end = begun + (double) milliseconds / 1e3;
    for (long thread = 0; thread < threads; thread++) {
        waits[thread].count = 0;
        if (pthread_create(&running[thread], NULL, work, &waits[thread]) != 0) {
            fail("no thread");
        }
    }
    size_t count = 0;
    for (long thread = 0; thread < threads; thread++) {
        pthread_join(running[thread], NULL);
        count += waits[thread].count;
    }
    printf("%zu %.9f\n", count, now() - begun);
    fflush(stdout);
    double *all = malloc((count + 1) * sizeof *all);
    if (!all || count == 0) {
        fail("no command was sent");
    }
    size_t length = 0;
    for (long thread = 0; thread < threads; thread++) {
        for (size_t index = 0; index < waits[thread].count; index++) {
            all[length++] = waits[thread].us[index];
        }
    }
    qsort(all, count, sizeof *all, compare);
    printf("%.3f %.3f\n", all[(count - 1) / 2], all[(size_t) (0.99 * (double) (count - 1))]);
    fflush(stdout);
    free(all);
}

int main(int count, char **words)
{
    char uri[1024];
    if (count != 2 || snprintf(uri, sizeof uri, "mongodb://%s", words[1]) >= (int) sizeof uri) {
        fprintf(stderr, "usage: mongo SERVER\n");
        return 2;
    }
    mongoc_init();
    mongoc_uri_t *parsed = mongoc_uri_new(uri);
    if (!parsed) {
        fail("no connection string");
    }
    pool = mongoc_client_pool_new(parsed);
    ping();
    puts("ready");
    fflush(stdout);
    long threads, milliseconds;
    while (scanf("%ld %ld", &threads, &milliseconds) == 2 && threads > 0 && threads <= THREADS_MAX) {
        round_of(threads, milliseconds);
    }
    mongoc_client_pool_destroy(pool);
    mongoc_uri_destroy(parsed);
    mongoc_cleanup();
    return 0;
}
