/* Tests a server with libmongoc, step by step:
 * libmongoc_client URI streaming|polling EXPECTATION.
 *
 * EXPECTATION: `ok`, `fail-over` (the set elects another primary meanwhile) or `refused` (by
 * authentication). A client of a pool has monitors that stream; a single client polls between its
 * operations. */

#include <mongoc/mongoc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const int64_t PATIENCE_US = 20 * 1000 * 1000;
/* Codes with which a server that is not primary refuses writes and reads. */
static const uint32_t NOT_PRIMARY = 10107, NOT_PRIMARY_NO_SECONDARY_OK = 13435;
/* The driver retries operations during an election once. A delayed reply to an earlier check may
 * direct the retry to the old primary again. */
static const int REFUSED_MAX = 5;
/* Maximum number of such refusals in a run (0 without an election), and their number so far. */
static int refused_max, refused_count;

/* Successful checks, counted by other threads. */
static volatile int32_t awaited_count, polled_count;

static void fail(const char *what, const bson_error_t *error) {
    fprintf(stderr, "libmongoc: %s: %s (%u)\n", what, error ? error->message : "failed", error ? error->code : 0);
    exit(1);
}

static void pause_20_ms(void) {
    struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    nanosleep(&pause, NULL);
}

static void on_heartbeat(const mongoc_apm_server_heartbeat_succeeded_t *event) {
    bool awaited = mongoc_apm_server_heartbeat_succeeded_get_awaited(event);
    bson_atomic_int32_fetch_add((int32_t *)(awaited ? &awaited_count : &polled_count), 1, bson_memory_order_seq_cst);
}

static bool command(mongoc_client_t *client, const char *name, bson_error_t *error) {
    bson_t *document = BCON_NEW(name, BCON_INT32(1));
    bool ok = mongoc_client_command_simple(client, "admin", document, NULL, NULL, error);
    bson_destroy(document);
    return ok;
}

/* Pauses before an operation is repeated that was refused because of an election. Any other error
 * fails the test. */
static void pause_if_refused(const char *what, const bson_error_t *error) {
    bool refused = error->code == NOT_PRIMARY || error->code == NOT_PRIMARY_NO_SECONDARY_OK;
    if (!refused || ++refused_count > refused_max) {
        fail(what, error);
    }
    pause_20_ms();
}

static void insert(mongoc_collection_t *collection, int32_t id) {
    bson_error_t error;
    bson_t *document = BCON_NEW("number", BCON_INT32(id));
    while (!mongoc_collection_insert_one(collection, document, NULL, NULL, &error)) {
        pause_if_refused("an insert", &error);
    }
    bson_destroy(document);
}

/* Returns the number of documents, read in several batches. */
static int find(mongoc_collection_t *collection) {
    bson_error_t error;
    for (;;) {
        bson_t filter = BSON_INITIALIZER;
        bson_t *options = BCON_NEW("batchSize", BCON_INT32(30));
        mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(collection, &filter, options, NULL);
        const bson_t *found;
        int count = 0;
        while (mongoc_cursor_next(cursor, &found)) {
            count++;
        }
        bool failed = mongoc_cursor_error(cursor, &error);
        mongoc_cursor_destroy(cursor);
        bson_destroy(options);
        if (!failed) {
            return count;
        }
        pause_if_refused("find", &error);
    }
}

static void works(mongoc_client_t *client) {
    refused_count = 0;
    bson_error_t error;
    char name[64];
    if (!command(client, "ping", &error)) {
        fail("ping", &error);
    }
    if (!command(client, "buildInfo", &error)) {
        fail("buildInfo", &error);
    }
    snprintf(name, sizeof name, "c%lld", (long long)bson_get_monotonic_time());
    mongoc_collection_t *collection = mongoc_client_get_collection(client, "db", name);
    for (int32_t id = 0; id < 100; id++) {
        insert(collection, id);
    }
    if (find(collection) != 100) {
        fail("not 100 documents are found", NULL);
    }
    mongoc_collection_destroy(collection);
    if (command(client, "noSuchCommand", &error) || error.code != 59) {
        fail("an unknown command is not refused with code 59", &error);
    }
    if (!command(client, "ping", &error)) {
        fail("ping after an error", &error);
    }
}

/* Writes until another primary has accepted some documents. Writes fail only because of the
 * election. */
static void fails_over(mongoc_client_t *client) {
    refused_count = 0;
    mongoc_collection_t *collection = mongoc_client_get_collection(client, "db", "writes");
    int64_t deadline = bson_get_monotonic_time() + PATIENCE_US;
    char first[BSON_HOST_NAME_MAX + 8] = "";
    for (int after = 0; after < 10;) {
        bson_error_t error;
        if (bson_get_monotonic_time() > deadline) {
            fail("no other primary", NULL);
        }
        insert(collection, after);
        mongoc_server_description_t *primary = mongoc_client_select_server(client, true, NULL, &error);
        if (!primary) {
            fail("selection", &error);
        }
        const char *host = mongoc_server_description_host(primary)->host_and_port;
        if (!*first) {
            snprintf(first, sizeof first, "%s", host);
        }
        after += strcmp(first, host) != 0;
        mongoc_server_description_destroy(primary);
        pause_20_ms();
    }
    mongoc_collection_destroy(collection);
}

int main(int count, char **words) {
    if (count != 4) {
        fprintf(stderr, "usage: %s URI streaming|polling ok|fail-over|refused\n", words[0]);
        return 2;
    }
    bool streams = strcmp(words[2], "streaming") == 0;
    refused_max = strcmp(words[3], "fail-over") == 0 ? REFUSED_MAX : 0;
    mongoc_init();
    bson_error_t error;
    mongoc_uri_t *uri = mongoc_uri_new_with_error(words[1], &error);
    if (!uri) {
        fail("the connection string", &error);
    }
    mongoc_uri_set_option_as_int32(uri, MONGOC_URI_HEARTBEATFREQUENCYMS, 500);
    mongoc_uri_set_option_as_int32(uri, MONGOC_URI_SERVERSELECTIONTIMEOUTMS, (int32_t)(PATIENCE_US / 1000));
    mongoc_apm_callbacks_t *callbacks = mongoc_apm_callbacks_new();
    mongoc_apm_set_server_heartbeat_succeeded_cb(callbacks, on_heartbeat);
    mongoc_client_pool_t *pool = NULL;
    mongoc_client_t *client;
    if (streams) {
        pool = mongoc_client_pool_new(uri);
        mongoc_client_pool_set_error_api(pool, MONGOC_ERROR_API_VERSION_2);
        mongoc_client_pool_set_appname(pool, "libmongoc");
        mongoc_client_pool_set_apm_callbacks(pool, callbacks, NULL);
        client = mongoc_client_pool_pop(pool);
    } else {
        client = mongoc_client_new_from_uri(uri);
        mongoc_client_set_error_api(client, MONGOC_ERROR_API_VERSION_2);
        mongoc_client_set_appname(client, "libmongoc");
        mongoc_client_set_apm_callbacks(client, callbacks, NULL);
    }
    if (strcmp(words[3], "refused") == 0) {
        if (command(client, "ping", &error)) {
            fail("a wrong password is accepted", NULL);
        }
        if (error.domain != MONGOC_ERROR_CLIENT || error.code != MONGOC_ERROR_CLIENT_AUTHENTICATE) {
            fail("not an authentication error", &error);
        }
    } else {
        works(client);
        if (strcmp(words[3], "fail-over") == 0) {
            fails_over(client);
            works(client);
        }
        int64_t deadline = bson_get_monotonic_time() + PATIENCE_US;
        volatile int32_t *checks = streams ? &awaited_count : &polled_count;
        while (*checks < 3) {
            if (bson_get_monotonic_time() > deadline) {
                fail("fewer than three checks within the time limit", NULL);
            }
            if (!command(client, "ping", &error)) {
                fail("ping between checks", &error);
            }
            pause_20_ms();
        }
        if (!streams && awaited_count) {
            fail("a polling client sent awaited checks", NULL);
        }
        works(client);
    }
    if (pool) {
        mongoc_client_pool_push(pool, client);
        mongoc_client_pool_destroy(pool);
    } else {
        mongoc_client_destroy(client);
    }
    mongoc_apm_callbacks_destroy(callbacks);
    mongoc_uri_destroy(uri);
    mongoc_cleanup();
    return 0;
}
