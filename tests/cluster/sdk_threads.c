/* Many threads that use libfencelock in every way at once, while somebody kills nodes under them;
 * built with ThreadSanitizer it is a test of the library's own threads.
 *
 *     sdk_threads SECONDS THREADS
 *
 * Endpoints come from FENCELOCK_ENDPOINTS. What a lock protects is a store in this process that
 * refuses stale tokens. A violation is a token that is handed out twice, or a write that the store
 * refuses although the lease still lasts afterwards: then nobody else can have a higher token. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <fencelock/election.h>

#include "base/random.h"

#define CLIENTS 8 /* shared by the threads */
#define NAMES   16

struct store {
    pthread_mutex_t mutex;
    uint64_t highest;
    const struct fl_lock *writer; /* whose token that is */
};

static struct store stores[NAMES];
static struct fl_client *_Atomic clients[CLIENTS];
static pthread_rwlock_t client_locks[CLIENTS]; /* written by who replaces a client */
static atomic_bool is_over;
static atomic_ulong n_granted, n_refused, n_lost, n_failed, n_stale, n_elected, n_replaced, n_wrong;

static void violate(const char *what, const char *name, uint64_t token)
{
    atomic_fetch_add(&n_wrong, 1);
    fprintf(stderr, "VIOLATION: %s, name %s, token %" PRIu64 "\n", what, name, token);
}

static void write_under(struct fl_lock *lock, unsigned number)
{
    struct store *store = &stores[number];
    uint64_t token = fl_lock_token(lock);
    bool is_refused;

    pthread_mutex_lock(&store->mutex);
    if (token == store->highest && store->writer != lock)
        violate("a token twice", fl_lock_name(lock), token);
    is_refused = token < store->highest;
    if (!is_refused) {
        store->highest = token;
        store->writer = lock;
    }
    pthread_mutex_unlock(&store->mutex);
    if (!is_refused)
        return;
    atomic_fetch_add(&n_stale, 1);
    if (fl_lock_valid(lock, 0))
        violate("refused while the lease lasts", fl_lock_name(lock), token);
}

static void count_loss(void *ctx, struct fl_lock *lock, enum fl_lost_cause cause, const char *by,
                       const char *reason)
{
    (void)ctx, (void)cause, (void)by, (void)reason;
    if (fl_lock_valid(lock, 0))
        violate("lost and valid", fl_lock_name(lock), fl_lock_token(lock));
    atomic_fetch_add(&n_lost, 1);
}

static void acquire_once(struct fl_client *client, struct fl_random *random)
{
    unsigned number = (unsigned)fl_random_below(random, NAMES);
    const struct fl_acquire_options options = {
        .wait_ms = (uint32_t)fl_random_below(random, 3000),
        .max_hold_ms = fl_random_below(random, 4) == 0 ? 50 : 0,
        .on_lost = fl_random_below(random, 2) == 0 ? count_loss : NULL,
    };
    struct fl_lock *lock;
    struct fl_why why;
    char name[16];
    int r;

    snprintf(name, sizeof name, "t/%u", number);
    r = fl_acquire(client, name, &options, &lock, &why);
    if (r != 0) {
        atomic_fetch_add(r == FL_E_TIMEOUT || r == FL_E_HELD ? &n_refused : &n_failed, 1);
        return;
    }
    atomic_fetch_add(&n_granted, 1);
    for (uint64_t i = fl_random_below(random, 4); i > 0; i--) {
        const struct timespec pause = {.tv_nsec = (long)fl_random_below(random, 30000000)};

        nanosleep(&pause, NULL);
        write_under(lock, number);
        fl_lock_progress(lock);
    }
    if (fl_random_below(random, 3) != 0)
        (void)fl_release(lock, &why);
    /* The next lock may have this one's address: it is the writer no more. */
    pthread_mutex_lock(&stores[number].mutex);
    if (stores[number].writer == lock)
        stores[number].writer = NULL;
    pthread_mutex_unlock(&stores[number].mutex);
    fl_lock_free(lock);
}

static void free_granted(void *ctx, int code, struct fl_lock *lock, const struct fl_why *why)
{
    (void)ctx, (void)code, (void)why;
    fl_lock_free(lock); /* NULL is fine */
}

static void look_around(struct fl_client *client, struct fl_random *random)
{
    struct fl_description *description;
    struct fl_listing *listing;
    char id[40];

    switch (fl_random_below(random, 4)) {
    case 0:
        if (fl_describe(client, "t/1", false, 3, &description, NULL) == 0)
            fl_description_free(description);
        break;
    case 1:
        if (fl_list_names(client, "t/", NULL, 10, &listing, NULL) == 0)
            fl_listing_free(listing);
        break;
    case 2:
        (void)fl_client_session_id(client, id);
        break;
    default:
        (void)fl_acquire_async(client, "t/async", &(struct fl_acquire_options){.wait_ms = 1000},
                               free_granted, NULL, NULL);
    }
}

static void count_election(void *ctx, struct fl_election *election, uint64_t token)
{
    (void)ctx, (void)election, (void)token;
    atomic_fetch_add(&n_elected, 1);
}

static void stand_a_while(struct fl_client *client, struct fl_random *random)
{
    const struct fl_election_options options = {.on_elected = count_election};
    const struct timespec pause = {.tv_nsec = (long)fl_random_below(random, 200000000)};
    struct fl_election *election;

    if (fl_election_new(client, "t/leader", &options, &election, NULL) != 0)
        return;
    nanosleep(&pause, NULL);
    (void)fl_election_leads(election, 10);
    if (fl_random_below(random, 2) == 0)
        (void)fl_election_resign(election, NULL);
    fl_election_free(election);
}

static struct fl_client *new_client(void)
{
    const struct fl_client_options options = {.ttl_ms = 3000, .timeout_ms = 2000};
    struct fl_client *client = NULL;

    if (fl_client_new(NULL, &options, &client, NULL) != 0)
        abort();
    return client;
}

/* Nobody may be in a call on a client that is freed. */
static void replace_client(unsigned number)
{
    pthread_rwlock_wrlock(&client_locks[number]);
    fl_client_free(atomic_load(&clients[number]));
    atomic_store(&clients[number], new_client());
    pthread_rwlock_unlock(&client_locks[number]);
    atomic_fetch_add(&n_replaced, 1);
}

static void *work(void *arg)
{
    struct fl_random random;

    fl_random_init(&random, (uint64_t)(uintptr_t)arg);
    while (!atomic_load(&is_over)) {
        unsigned number = (unsigned)fl_random_below(&random, CLIENTS);
        uint64_t what = fl_random_below(&random, 100);

        if (what == 0) {
            replace_client(number);
            continue;
        }
        pthread_rwlock_rdlock(&client_locks[number]);
        if (what == 1)
            fl_client_cancel_waits(atomic_load(&clients[number]));
        else if (what < 5)
            stand_a_while(atomic_load(&clients[number]), &random);
        else if (what < 15)
            look_around(atomic_load(&clients[number]), &random);
        else
            acquire_once(atomic_load(&clients[number]), &random);
        pthread_rwlock_unlock(&client_locks[number]);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct timespec duration = {.tv_sec = argc == 3 ? atoi(argv[1]) : 0};
    unsigned n_threads = argc == 3 ? (unsigned)atoi(argv[2]) : 0;
    pthread_t *threads = calloc(n_threads + 1, sizeof *threads);
    pthread_rwlockattr_t fair;

    if (n_threads == 0 || threads == NULL) {
        fprintf(stderr, "usage: sdk_threads SECONDS THREADS\n");
        return 64;
    }
    for (unsigned i = 0; i < NAMES; i++)
        pthread_mutex_init(&stores[i].mutex, NULL);
    pthread_rwlockattr_init(&fair);
    pthread_rwlockattr_setkind_np(&fair, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    for (unsigned i = 0; i < CLIENTS; i++) {
        pthread_rwlock_init(&client_locks[i], &fair);
        atomic_init(&clients[i], new_client());
    }
    for (unsigned i = 0; i < n_threads; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(i + 1)) != 0)
            abort();
    nanosleep(&duration, NULL);
    atomic_store(&is_over, true);
    for (unsigned i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < CLIENTS; i++)
        fl_client_free(atomic_load(&clients[i]));
    free(threads);
    printf("granted %lu, not granted %lu, lost %lu, failed %lu, stale writes refused %lu, elected "
           "%lu, clients "
           "replaced %lu, violations %lu\n",
           n_granted, n_refused, n_lost, n_failed, n_stale, n_elected, n_replaced, n_wrong);
    return n_wrong != 0 || n_granted == 0;
}
