/* hold: takes N locks with names of 60 bytes and leaves them held, for measurements at size.
 *
 *     hold ENDPOINTS N [SESSIONS]
 *
 * Sessions have a TTL of an hour and are left alone when it ends: the locks stay. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <fencelock/fencelock.h>

#define OUTSTANDING_MAX 4096
#define SESSIONS_MAX    1000
#define PROGRESS_EVERY  100000

static struct {
    pthread_mutex_t guard;
    pthread_cond_t changed;
    uint64_t outstanding, held, failed;
    struct fl_why first_failure;
} all = {.guard = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void on_acquired(void *ctx, int code, struct fl_lock *lock, const struct fl_why *why)
{
    (void)ctx;
    (void)lock; /* never freed: that would release it */
    pthread_mutex_lock(&all.guard);
    all.outstanding--;
    if (code == 0)
        all.held++;
    else if (all.failed++ == 0)
        all.first_failure = *why;
    if (code == 0 && all.held % PROGRESS_EVERY == 0) {
        printf("%" PRIu64 " held\n", all.held);
        fflush(stdout);
    }
    pthread_cond_signal(&all.changed);
    pthread_mutex_unlock(&all.guard);
}

static void wait_until_at_most(uint64_t outstanding)
{
    pthread_mutex_lock(&all.guard);
    while (all.outstanding > outstanding)
        pthread_cond_wait(&all.changed, &all.guard);
    pthread_mutex_unlock(&all.guard);
}

static int take(struct fl_client *client, uint64_t i)
{
    struct fl_why why;
    char name[80];

    snprintf(name, sizeof name, "held/for/measurements/at/size/of/the/region/invoice/%09" PRIu64,
             i);
    wait_until_at_most(OUTSTANDING_MAX - 1);
    pthread_mutex_lock(&all.guard);
    all.outstanding++;
    pthread_mutex_unlock(&all.guard);
    if (fl_acquire_async(client, name, NULL, on_acquired, NULL, &why) == 0)
        return 0;
    fprintf(stderr, "hold: %s\n", why.message);
    return -1;
}

int main(int argc, char **argv)
{
    uint64_t n = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    unsigned sessions = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 20;
    struct fl_client_options options = {.name = "hold", .ttl_ms = 3600000, .timeout_ms = 600000};
    struct fl_client *clients[SESSIONS_MAX];
    struct fl_why why;

    if (n == 0 || sessions == 0 || sessions > SESSIONS_MAX) {
        fprintf(stderr, "usage: hold ENDPOINTS N [SESSIONS]\n");
        return 64;
    }
    for (unsigned i = 0; i < sessions; i++) {
        if (fl_client_new(argv[1], &options, &clients[i], &why) < 0) {
            fprintf(stderr, "hold: %s\n", why.message);
            return EXIT_FAILURE;
        }
    }
    for (uint64_t i = 0; i < n; i++) {
        if (take(clients[i % sessions], i) < 0)
            return EXIT_FAILURE;
    }
    wait_until_at_most(0);
    printf("%" PRIu64 " held, %" PRIu64 " failed%s%s\n", all.held, all.failed,
           all.failed > 0 ? ": " : "", all.failed > 0 ? all.first_failure.message : "");
    fflush(stdout);
    _exit(all.failed > 0 ? EXIT_FAILURE : EXIT_SUCCESS);
}
