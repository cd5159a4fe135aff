/* load: many clients of libfencelock in one process, which write down what they ask, hear and
 * believe.
 *
 *     load --endpoints LIST --clients N [--ttl MS] [--names K] [--think MS] [--readers R] [--seed
 * S]
 *
 * Each client holds a lock of its own from beginning to end (own/I), and contends for others, one
 * at a time: x/I is always exclusive, m/I exclusive or shared, n/I counted with 3 permits. Readers
 * describe names. The tag keeps several such processes apart. The history goes to standard output,
 * a line for each event, in the form that history.py tells. "# ready" says that every client has
 * its own lock. When standard input ends, nothing new begins; what is under way ends; every name is
 * described once more; "# settled".
 *
 * One thread decides and calls; the library's callbacks only note and set the next instant. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/heap.h"
#include "base/random.h"
#include "fencelock/fencelock.h"

#define MS               UINT64_C(1000000)
#define SAMPLE_NS        (20 * MS) /* how often a holder asks whether it still is one */
#define OWN_SAMPLE_NS    (250 * MS)
#define HOLD_MAX_NS      (60 * MS)
#define WAIT_MAX_MS      4000u
#define PERMITS          3u
#define READER_PAUSE_NS  (30 * MS)
#define READER_SHOWS_MAX 64u

enum state { IDLE, ASKING, HOLDING, RELEASING };

/* One acquire and its release at a time. */
struct worker {
    struct fl_heap_node due; /* key: when the scheduler looks at it again, in nanoseconds */
    struct client *client;
    enum state state;
    bool is_own, is_lost;
    char name[48];
    uint64_t op, release_op; /* in the history */
    uint64_t release_at_ns, valid_at_ns;
    struct fl_lock *lock;
};

struct client {
    struct load *load;
    unsigned number;
    struct fl_client *sdk;
    struct worker own, other;
};

struct reader {
    struct load *load;
    pthread_t thread;
    struct fl_client *sdk;
    struct fl_random random;
};

struct load {
    const char *endpoints, *tag;
    unsigned n_clients, n_names, n_readers;
    uint32_t ttl_ms, think_ms;
    struct client *clients;
    struct reader *readers;

    pthread_mutex_t guard; /* of all below, of workers, and of the output */
    pthread_cond_t changed;
    struct fl_heap due;
    struct fl_random random;
    uint64_t next_op;
    unsigned n_own;   /* own locks held */
    unsigned n_going; /* workers that ask, hold or release, own locks aside */
    bool is_ready, is_ending;
};

/* The clock of the history: the same in every process, and nobody sets it. */
static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* --- What a worker does; the guard is held --- */

static void look_again(struct worker *worker, uint64_t at_ns)
{
    struct load *load = worker->client->load;

    fl_heap_set(&load->due, &worker->due, at_ns);
    pthread_cond_signal(&load->changed);
}

static void become(struct worker *worker, enum state state)
{
    struct load *load = worker->client->load;
    bool was_going = worker->state != IDLE, is_going = state != IDLE;

    if (!worker->is_own)
        load->n_going = load->n_going - was_going + is_going;
    else if (worker->state == HOLDING || state == HOLDING)
        load->n_own = load->n_own - (worker->state == HOLDING) + (state == HOLDING);
    worker->state = state;
}

static void rest(struct worker *worker, uint64_t now)
{
    struct load *load = worker->client->load;
    uint64_t think_ns = load->think_ms * MS;

    become(worker, IDLE);
    look_again(worker, now + fl_random_between(&load->random, think_ns / 2, think_ns * 3 / 2));
}

static void tell_belief(const struct worker *worker)
{
    if (worker->valid_at_ns != 0)
        printf("v %" PRIu64 " %s%" PRIu64 "\n", worker->valid_at_ns, worker->client->load->tag,
               worker->op);
}

static void sample(struct worker *worker)
{
    uint64_t now = now_ns();

    if (fl_lock_valid(worker->lock, 0))
        worker->valid_at_ns = now;
}

static void heard_lost(void *ctx, struct fl_lock *lock, enum fl_lost_cause cause, const char *by,
                       const char *reason)
{
    struct worker *worker = ctx;
    struct load *load = worker->client->load;
    uint64_t now = now_ns();

    (void)lock, (void)by, (void)reason;
    pthread_mutex_lock(&load->guard);
    printf("l %" PRIu64 " %s%" PRIu64 " %d\n", now, load->tag, worker->op, (int)cause);
    worker->is_lost = true;
    look_again(worker, now);
    pthread_mutex_unlock(&load->guard);
}

static void tell_answer(const struct load *load, uint64_t op, int code, const struct fl_why *why)
{
    bool is_no = code == FL_E_HELD || code == FL_E_TIMEOUT;
    bool is_failed = code == FL_E_CONFLICT || code == FL_E_INVALID || code == FL_E_LIMITED ||
                     code == FL_E_STALE || code == FL_E_LOST;

    printf("r %" PRIu64 " %s%" PRIu64, now_ns(), load->tag, op);
    if (is_no)
        printf(" no %" PRIu64 "\n", why->holder.token);
    else
        printf(" %s %d\n", is_failed ? "fail" : "unknown", code);
}

static void heard_acquired(void *ctx, int code, struct fl_lock *lock, const struct fl_why *why)
{
    struct worker *worker = ctx;
    struct load *load = worker->client->load;
    uint64_t now = now_ns();

    pthread_mutex_lock(&load->guard);
    if (code == 0) {
        printf("r %" PRIu64 " %s%" PRIu64 " ok %" PRIu64 "\n", now, load->tag, worker->op,
               fl_lock_token(lock));
        worker->lock = lock;
        become(worker, HOLDING);
        worker->release_at_ns = now + fl_random_below(&load->random, HOLD_MAX_NS);
        look_again(worker, now);
    } else {
        tell_answer(load, worker->op, code, why);
        rest(worker, now);
    }
    pthread_mutex_unlock(&load->guard);
}

static void choose(struct worker *worker, struct fl_acquire_options *options)
{
    struct load *load = worker->client->load;
    uint64_t number = fl_random_below(&load->random, load->n_names);
    char kind = number % 4 == 2 ? 'm' : number % 4 == 3 ? 'n' : 'x';

    *options = (struct fl_acquire_options){
        .mode = FL_EXCLUSIVE, .wait_ms = WAIT_MAX_MS, .on_lost = heard_lost, .ctx = worker};
    if (worker->is_own) {
        snprintf(worker->name, sizeof worker->name, "own/%s%u", load->tag, worker->client->number);
        return;
    }
    snprintf(worker->name, sizeof worker->name, "%c/%" PRIu64, kind, number);
    if (fl_random_chance(&load->random, 1, 3))
        options->wait_ms = 0;
    if (kind == 'm' && fl_random_chance(&load->random, 2, 3))
        options->mode = FL_SHARED;
    if (kind == 'n') {
        options->mode = FL_COUNTED;
        options->limit = PERMITS;
    }
}

static void ask(struct worker *worker)
{
    static const char *const modes[] = {"-", "exclusive", "shared", "counted"};
    struct load *load = worker->client->load;
    struct fl_acquire_options options;
    struct fl_why why;
    int r;

    choose(worker, &options);
    worker->op = ++load->next_op;
    worker->valid_at_ns = 0;
    worker->is_lost = false;
    become(worker, ASKING);
    printf("i %" PRIu64 " %s%" PRIu64 " load/%s%u acquire %s %s %u %u\n", now_ns(), load->tag,
           worker->op, load->tag, worker->client->number, worker->name, modes[options.mode],
           options.limit, options.wait_ms);
    r = fl_acquire_async(worker->client->sdk, worker->name, &options, heard_acquired, worker, &why);
    if (r < 0) {
        tell_answer(load, worker->op, r, &why);
        rest(worker, now_ns());
    }
}

static void heard_released(void *ctx, struct fl_lock *lock, int code, const struct fl_why *why)
{
    struct worker *worker = ctx;
    struct load *load = worker->client->load;
    uint64_t now = now_ns();

    pthread_mutex_lock(&load->guard);
    if (code == 0)
        printf("r %" PRIu64 " %s%" PRIu64 " ok\n", now, load->tag, worker->release_op);
    else
        tell_answer(load, worker->release_op, code, why);
    worker->lock = NULL;
    rest(worker, now);
    pthread_mutex_unlock(&load->guard);
    fl_lock_free(lock);
}

static void give_back(struct worker *worker)
{
    struct load *load = worker->client->load;
    int r;

    tell_belief(worker);
    worker->release_op = ++load->next_op;
    become(worker, RELEASING);
    printf("i %" PRIu64 " %s%" PRIu64 " load/%s%u release %s %s%" PRIu64 "\n", now_ns(), load->tag,
           worker->release_op, load->tag, worker->client->number, worker->name, load->tag,
           worker->op);
    r = fl_release_async(worker->lock, heard_released, worker);
    if (r < 0) {
        tell_answer(load, worker->release_op, r, NULL);
        fl_lock_free(worker->lock);
        worker->lock = NULL;
        rest(worker, now_ns());
    }
}

static void look_at_holder(struct worker *worker, uint64_t now)
{
    struct load *load = worker->client->load;

    sample(worker);
    if (worker->is_lost) {
        tell_belief(worker);
        fl_lock_free(worker->lock);
        worker->lock = NULL;
        rest(worker, now);
    } else if (worker->is_own) {
        if (load->is_ready || load->n_own < load->n_clients) {
            look_again(worker, now + OWN_SAMPLE_NS);
            return;
        }
        load->is_ready = true;
        printf("# ready\n");
        fflush(stdout);
        look_again(worker, now + OWN_SAMPLE_NS);
    } else if (now >= worker->release_at_ns) {
        give_back(worker);
    } else {
        look_again(worker, now + SAMPLE_NS);
    }
}

static void look_at(struct worker *worker)
{
    struct load *load = worker->client->load;

    if (worker->state == HOLDING)
        look_at_holder(worker, now_ns());
    else if (worker->state == IDLE && !load->is_ending)
        ask(worker);
}

/* --- Readers --- */

static void tell_description(const struct load *load, uint64_t op, const struct fl_description *d)
{
    printf("r %" PRIu64 " %s%" PRIu64 " ok %" PRIu64 " holders", now_ns(), load->tag, op,
           d->log_index);
    for (size_t i = 0; i < d->n_holders; i++)
        printf("%c%" PRIu64, i == 0 ? '=' : ',', d->holders[i].token);
    printf(" waiters");
    for (size_t i = 0; i < d->n_waiters; i++)
        printf("%c%s", i == 0 ? '=' : ',', d->waiters[i].client);
    putchar('\n');
}

static void describe(struct load *load, struct fl_client *sdk, unsigned reader, const char *name)
{
    struct fl_description *description = NULL;
    struct fl_why why;
    uint64_t op;
    int r;

    pthread_mutex_lock(&load->guard);
    op = ++load->next_op;
    printf("i %" PRIu64 " %s%" PRIu64 " reader/%s%u describe %s\n", now_ns(), load->tag, op,
           load->tag, reader, name);
    pthread_mutex_unlock(&load->guard);
    r = fl_describe(sdk, name, false, READER_SHOWS_MAX, &description, &why);
    pthread_mutex_lock(&load->guard);
    if (r == 0)
        tell_description(load, op, description);
    else
        tell_answer(load, op, r, &why);
    pthread_mutex_unlock(&load->guard);
    fl_description_free(description);
}

static void name_of(const struct load *load, uint64_t number, char out[48])
{
    uint64_t name = number % load->n_names;

    if (number >= load->n_names)
        snprintf(out, 48, "own/%s%" PRIu64, load->tag, number - load->n_names);
    else
        snprintf(out, 48, "%c/%" PRIu64, name % 4 == 2 ? 'm' : name % 4 == 3 ? 'n' : 'x', name);
}

static void *read_on(void *ctx)
{
    struct reader *reader = ctx;
    struct load *load = reader->load;
    unsigned number = (unsigned)(reader - load->readers);
    bool is_ending = false;
    char name[48];

    while (!is_ending) {
        name_of(load, fl_random_below(&reader->random, load->n_names + 2), name);
        describe(load, reader->sdk, number, name);
        nanosleep(&(struct timespec){.tv_nsec = (long)READER_PAUSE_NS}, NULL);
        pthread_mutex_lock(&load->guard);
        is_ending = load->is_ending;
        pthread_mutex_unlock(&load->guard);
    }
    return NULL;
}

/* --- The run --- */

static struct fl_client *connect_as(const char *endpoints, const char *name, uint32_t ttl_ms)
{
    struct fl_client_options options = {.name = name, .ttl_ms = ttl_ms};
    struct fl_client *sdk = NULL;
    struct fl_why why;

    if (fl_client_new(endpoints, &options, &sdk, &why) < 0) {
        fprintf(stderr, "load: %s: %s\n", name, why.message);
        exit(EXIT_FAILURE);
    }
    return sdk;
}

/* The endpoints with another one first: clients spread over gateways. */
static char *rotate(const char *endpoints, unsigned by)
{
    char *text = fl_xstrdup(endpoints), *out = fl_xcalloc(1, strlen(endpoints) + 2);
    char *words[64];
    unsigned n = 0;

    for (char *at = text, *word; n < 64 && (word = strsep(&at, ",")) != NULL;)
        words[n++] = word;
    for (unsigned i = 0; i < n; i++) {
        strcat(out, words[(i + by) % n]);
        if (i + 1 < n)
            strcat(out, ",");
    }
    free(text);
    return out;
}

static void begin(struct load *load)
{
    char name[48];

    load->clients = fl_xcalloc(load->n_clients, sizeof *load->clients);
    load->readers = fl_xcalloc(load->n_readers, sizeof *load->readers);
    for (unsigned i = 0; i < load->n_clients; i++) {
        struct client *client = &load->clients[i];
        char *endpoints = rotate(load->endpoints, i);

        snprintf(name, sizeof name, "load/%s%u", load->tag, i);
        *client = (struct client){.load = load, .number = i};
        client->sdk = connect_as(endpoints, name, load->ttl_ms);
        client->own = (struct worker){.client = client, .is_own = true};
        client->other = (struct worker){.client = client};
        pthread_mutex_lock(&load->guard);
        look_again(&client->own, now_ns());
        look_again(&client->other,
                   now_ns() + fl_random_below(&load->random, load->think_ms * MS + 1));
        pthread_mutex_unlock(&load->guard);
        free(endpoints);
    }
    for (unsigned i = 0; i < load->n_readers; i++) {
        struct reader *reader = &load->readers[i];
        char *endpoints = rotate(load->endpoints, i);

        snprintf(name, sizeof name, "reader/%u", i);
        reader->load = load;
        reader->sdk = connect_as(endpoints, name, load->ttl_ms);
        fl_random_init(&reader->random, fl_random_u64(&load->random));
        if (pthread_create(&reader->thread, NULL, read_on, reader) != 0)
            exit(EXIT_FAILURE);
        free(endpoints);
    }
}

static void *await_the_end(void *ctx)
{
    struct load *load = ctx;
    char ignored[64];

    while (read(STDIN_FILENO, ignored, sizeof ignored) > 0)
        ;
    pthread_mutex_lock(&load->guard);
    load->is_ending = true;
    pthread_cond_signal(&load->changed);
    pthread_mutex_unlock(&load->guard);
    return NULL;
}

/* Waits until a worker is due, or anything has changed; the guard is held. */
static void wait_for_due(struct load *load)
{
    const struct fl_heap_node *first = fl_heap_first(&load->due);
    uint64_t now = now_ns();
    uint64_t wait_ns = first == NULL ? 1000 * MS : first->key > now ? first->key - now : 0;
    struct timespec until;

    if (wait_ns == 0)
        return;
    clock_gettime(CLOCK_MONOTONIC, &until);
    wait_ns += (uint64_t)until.tv_nsec;
    until.tv_sec += (time_t)(wait_ns / 1000000000);
    until.tv_nsec = (long)(wait_ns % 1000000000);
    pthread_cond_timedwait(&load->changed, &load->guard, &until);
}

static void run(struct load *load)
{
    pthread_mutex_lock(&load->guard);
    while (!load->is_ending || load->n_going > 0) {
        struct fl_heap_node *node = fl_heap_first(&load->due);

        if (node == NULL || node->key > now_ns()) {
            wait_for_due(load);
            continue;
        }
        fl_heap_remove(&load->due, node);
        look_at(FL_CONTAINER_OF(node, struct worker, due));
        /* Let callbacks in: a scheduler that is behind would keep them out. */
        pthread_mutex_unlock(&load->guard);
        pthread_mutex_lock(&load->guard);
    }
    pthread_mutex_unlock(&load->guard);
}

/* Everything once more, and what is believed now. */
static void settle(struct load *load)
{
    struct fl_client *sdk = connect_as(load->endpoints, "reader/last", load->ttl_ms);
    char name[48];

    for (unsigned i = 0; i < load->n_readers; i++)
        pthread_join(load->readers[i].thread, NULL);
    for (unsigned i = 0; i < load->n_names + load->n_clients; i++) {
        name_of(load, i, name);
        describe(load, sdk, load->n_readers, name);
    }
    pthread_mutex_lock(&load->guard);
    for (unsigned i = 0; i < load->n_clients; i++) {
        if (load->clients[i].own.state == HOLDING) {
            sample(&load->clients[i].own);
            tell_belief(&load->clients[i].own);
        }
    }
    printf("# settled\n");
    fflush(stdout);
}

static void parse_arguments(struct load *load, int argc, char **argv)
{
    uint64_t seed = 1;

    for (int i = 1; i + 1 < argc; i += 2) {
        const char *value = argv[i + 1];
        unsigned number = (unsigned)strtoul(value, NULL, 10);

        if (strcmp(argv[i], "--endpoints") == 0)
            load->endpoints = value;
        else if (strcmp(argv[i], "--tag") == 0)
            load->tag = value;
        else if (strcmp(argv[i], "--clients") == 0)
            load->n_clients = number;
        else if (strcmp(argv[i], "--ttl") == 0)
            load->ttl_ms = number;
        else if (strcmp(argv[i], "--names") == 0)
            load->n_names = number;
        else if (strcmp(argv[i], "--think") == 0)
            load->think_ms = number;
        else if (strcmp(argv[i], "--readers") == 0)
            load->n_readers = number;
        else if (strcmp(argv[i], "--seed") == 0)
            seed = strtoull(value, NULL, 10);
    }
    if (load->endpoints == NULL || load->n_clients == 0 || load->n_names == 0) {
        fprintf(stderr, "usage: load --endpoints LIST --clients N [--ttl MS] [--names K] "
                        "[--think MS] [--readers R] [--seed S] [--tag TEXT]\n");
        exit(64);
    }
    fl_random_init(&load->random, seed);
}

int main(int argc, char **argv)
{
    static struct load load = {
        .tag = "", .ttl_ms = 10000, .n_names = 8, .think_ms = 50, .n_readers = 2};
    static char buffer[1 << 16];
    pthread_condattr_t monotonic;
    pthread_t ender;

    parse_arguments(&load, argc, argv);
    setvbuf(stdout, buffer, _IOLBF, sizeof buffer); /* whole lines, also when we are killed */
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&load.guard, NULL);
    pthread_cond_init(&load.changed, &monotonic);
    begin(&load);
    if (pthread_create(&ender, NULL, await_the_end, &load) != 0)
        return EXIT_FAILURE;
    run(&load);
    settle(&load);
    _exit(EXIT_SUCCESS); /* sessions are left to expire: closing a thousand takes long */
}
