#include "probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/list.h"

static void name_of(char *out, size_t size, uint64_t n)
{
    snprintf(out, size, "probe/%ld/%llu", (long)getpid(), (unsigned long long)n);
}

static void begin(struct probe *probe, uint64_t due_ns)
{
    char name[64];

    if (probe->n == probe->capacity) {
        probe->capacity = fl_grow_capacity(probe->capacity, probe->n + 1, sizeof *probe->due_ns);
        probe->due_ns = fl_xrealloc(probe->due_ns, probe->capacity * sizeof *probe->due_ns);
    }
    probe->due_ns[probe->n] = due_ns;
    name_of(name, sizeof name, probe->n);
    pthread_mutex_lock(&probe->mutex);
    probe->n++;
    pthread_mutex_unlock(&probe->mutex);
    swarm_acquire(&probe->swarm.members[0], probe->n, name, 60000);
}

static void on_timer(struct fl_timer *timer, uint64_t now_ms)
{
    struct probe *probe = FL_CONTAINER_OF(timer, struct probe, timer);

    for (uint64_t now_ns = swarm_now_ns(); probe->next_ns <= now_ns;
         probe->next_ns += probe->every_ns)
        begin(probe, probe->next_ns);
    fl_timer_set(probe->loop, &probe->timer, now_ms + 1);
}

static void on_open(void *ctx)
{
    struct probe *probe = ctx;

    probe->next_ns = swarm_now_ns();
    fl_timer_set(probe->loop, &probe->timer, fl_loop_now_ms(probe->loop));
}

static void on_acquired(void *ctx, struct member *member, uint64_t request_id, bool granted,
                        uint64_t token)
{
    struct probe *probe = ctx;
    char name[64];

    if (!granted)
        return;
    pthread_mutex_lock(&probe->mutex);
    probe->n_granted++;
    fl_histogram_record(&probe->acquires, swarm_now_ns() - probe->due_ns[request_id - 1]);
    pthread_mutex_unlock(&probe->mutex);
    name_of(name, sizeof name, request_id - 1);
    swarm_release(member, request_id, name, token);
}

static void on_stop(uv_async_t *async)
{
    struct probe *probe = async->data;

    atomic_store(&probe->is_lost, probe->swarm.n_lost != 0);
    fl_timer_clear(probe->loop, &probe->timer);
    swarm_deinit(&probe->swarm);
    uv_close((uv_handle_t *)async, NULL);
    fl_loop_stop(probe->loop);
}

static void *run(void *ctx)
{
    struct probe *probe = ctx;

    fl_loop_run(probe->loop);
    fl_loop_free(probe->loop);
    return NULL;
}

void probe_start(struct probe *probe, const char *endpoints, unsigned rate)
{
    struct swarm_config config = {.endpoints = endpoints,
                                  .client = "probe",
                                  .n_connections = 1,
                                  .n_members = 1,
                                  .ttl_ms = 10000,
                                  .opening_max = 1,
                                  .ctx = probe,
                                  .on_all_open = on_open,
                                  .on_acquired = on_acquired};

    *probe = (struct probe){.every_ns = 1000000000 / rate, .timer = FL_TIMER_INIT(on_timer)};
    pthread_mutex_init(&probe->mutex, NULL);
    fl_histogram_init(&probe->acquires);
    probe->loop = fl_loop_new();
    FL_REQUIRE(probe->loop != NULL &&
               uv_async_init(fl_loop_uv(probe->loop), &probe->stop, on_stop) == 0);
    probe->stop.data = probe;
    swarm_init(&probe->swarm, probe->loop, &config);
    swarm_open(&probe->swarm);
    FL_REQUIRE(pthread_create(&probe->thread, NULL, run, probe) == 0);
}

bool probe_stop(struct probe *probe)
{
    uv_async_send(&probe->stop);
    pthread_join(probe->thread, NULL);
    fl_histogram_deinit(&probe->acquires);
    free(probe->due_ns);
    pthread_mutex_destroy(&probe->mutex);
    return !atomic_load(&probe->is_lost);
}

void probe_tell(struct probe *probe, const char *what)
{
    const struct fl_histogram *h = &probe->acquires;

    pthread_mutex_lock(&probe->mutex);
    printf("others' acquires %s: %llu, p50 %.2f ms, p99 %.2f ms, p99.9 %.2f ms, longest %.2f ms, "
           "not answered yet %llu\n",
           what, (unsigned long long)h->n, (double)fl_histogram_at(h, 0.5) / 1e6,
           (double)fl_histogram_at(h, 0.99) / 1e6, (double)fl_histogram_at(h, 0.999) / 1e6,
           (double)h->max / 1e6, (unsigned long long)(probe->n - probe->n_granted));
    fl_histogram_deinit(&probe->acquires);
    fl_histogram_init(&probe->acquires);
    pthread_mutex_unlock(&probe->mutex);
}
