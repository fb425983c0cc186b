/* Pings by libmongoc. Each line of standard input contains the number of threads and the number of
 * pings of each; each line of standard output contains the duration in seconds. */
#include <mongoc/mongoc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS_MAX = 1024 };

static mongoc_client_pool_t *pool;

static void *work(void *argument)
{
    long times = *(const long *) argument;
    bson_t *ping = BCON_NEW("ping", BCON_INT32(1));
    for (long time = 0; time < times; time++) {
        bson_t reply;
        bson_error_t error;
        mongoc_client_t *client = mongoc_client_pool_pop(pool);
        if (!mongoc_client_command_simple(client, "admin", ping, NULL, &reply, &error)) {
            fprintf(stderr, "%s\n", error.message);
            exit(1);
        }
        bson_destroy(&reply);
        mongoc_client_pool_push(pool, client);
    }
    bson_destroy(ping);
    return NULL;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double) time.tv_sec + (double) time.tv_nsec / 1e9;
}

int main(int count, char **words)
{
    if (count != 2) {
        fprintf(stderr, "usage: libmongoc URI\n");
        return 2;
    }
    mongoc_init();
    mongoc_uri_t *uri = mongoc_uri_new(words[1]);
    pool = mongoc_client_pool_new(uri);
    long threads, times;
    while (scanf("%ld %ld", &threads, &times) == 2 && threads > 0 && threads <= THREADS_MAX) {
        pthread_t running[THREADS_MAX];
        double start = now();
        for (long thread = 0; thread < threads; thread++) {
            if (pthread_create(&running[thread], NULL, work, &times) != 0) {
                return 1;
            }
        }
        for (long thread = 0; thread < threads; thread++) {
            pthread_join(running[thread], NULL);
        }
        printf("%.9f\n", now() - start);
        fflush(stdout);
    }
    mongoc_client_pool_destroy(pool);
    mongoc_uri_destroy(uri);
    mongoc_cleanup();
    return 0;
}
