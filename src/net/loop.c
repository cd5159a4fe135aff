#include "net/loop.h"

#include <stdlib.h>
#include <time.h>

#include "base/assert.h"
#include "base/error.h"

struct fl_loop {
    uv_loop_t uv;
    uv_timer_t timer;
    uv_check_t check;
    uv_prepare_t prepare;
    struct fl_heap timers;
    struct fl_list hooks;
    uint64_t now_ms;
    bool is_now_stale; /* the loop slept since the clock was read */
    uint8_t scratch[64 * 1024];
    uint64_t armed_ms; /* for when the uv_timer is set; UINT64_MAX: not */
};

static uint64_t read_clock_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint64_t fl_loop_update_now_ms(struct fl_loop *loop)
{
    uint64_t now_ms = read_clock_ms();

    if (now_ms > loop->now_ms)
        loop->now_ms = now_ms;
    loop->is_now_stale = false;
    return loop->now_ms;
}

uint64_t fl_loop_now_ms(struct fl_loop *loop)
{
    return loop->is_now_stale ? fl_loop_update_now_ms(loop) : loop->now_ms;
}

uv_loop_t *fl_loop_uv(struct fl_loop *loop)
{
    return &loop->uv;
}

uint8_t *fl_loop_scratch(struct fl_loop *loop, size_t *ret_size)
{
    *ret_size = sizeof loop->scratch;
    return loop->scratch;
}

/* --- Timers: one heap, one uv_timer for its first --- */

static void fire_due(struct fl_loop *loop)
{
    struct fl_heap_node *node;

    while ((node = fl_heap_first(&loop->timers)) != NULL && node->key <= loop->now_ms) {
        struct fl_timer *timer = (struct fl_timer *)node;

        fl_heap_remove(&loop->timers, node);
        timer->fire(timer, loop->now_ms);
    }
}

static void on_uv_timer(uv_timer_t *timer)
{
    struct fl_loop *loop = timer->data;

    loop->armed_ms = UINT64_MAX;
    fl_loop_update_now_ms(loop);
    fire_due(loop);
}

/* libuv's clock stands still during a suspend and ours does not: the wait is a hint, the heap
 * decides. */
static void arm(struct fl_loop *loop)
{
    const struct fl_heap_node *first = fl_heap_first(&loop->timers);

    if (first == NULL) {
        if (loop->armed_ms != UINT64_MAX)
            uv_timer_stop(&loop->timer);
        loop->armed_ms = UINT64_MAX;
        return;
    }
    if (first->key == loop->armed_ms)
        return;
    loop->armed_ms = first->key;
    uv_update_time(&loop->uv);
    uv_timer_start(&loop->timer, on_uv_timer,
                   first->key > loop->now_ms ? first->key - loop->now_ms : 0, 0);
}

_Static_assert(offsetof(struct fl_timer, node) == 0, "fire_due() takes a node for its timer");

int fl_timer_set(struct fl_loop *loop, struct fl_timer *timer, uint64_t at_ms)
{
    return fl_heap_try_set(&loop->timers, &timer->node, at_ms);
}

void fl_timer_clear(struct fl_loop *loop, struct fl_timer *timer)
{
    fl_heap_remove(&loop->timers, &timer->node);
}

/* --- The end of a turn --- */

/* Hooks that are marked by a hook run in the same pass: what it sent goes out with this turn. */
static void run_hooks(struct fl_loop *loop)
{
    struct fl_list *link;

    while ((link = fl_list_first(&loop->hooks)) != NULL) {
        struct fl_turn_hook *hook = (struct fl_turn_hook *)link;

        fl_turn_hook_clear(hook);
        hook->run(hook);
    }
}

_Static_assert(offsetof(struct fl_turn_hook, link) == 0, "run_hooks() takes a link for its hook");

void fl_turn_hook_mark(struct fl_loop *loop, struct fl_turn_hook *hook)
{
    if (hook->is_marked)
        return;
    hook->is_marked = true;
    fl_list_append(&loop->hooks, &hook->link);
}

void fl_turn_hook_clear(struct fl_turn_hook *hook)
{
    if (!hook->is_marked)
        return;
    hook->is_marked = false;
    fl_list_remove(&hook->link);
}

/* After polling: everything that arrived in this turn has been handled. */
static void on_check(uv_check_t *check)
{
    run_hooks(check->data);
}

/* Before polling: what timers and closed handles left to do, then how long to sleep. */
static void on_prepare(uv_prepare_t *prepare)
{
    struct fl_loop *loop = prepare->data;

    run_hooks(loop);
    arm(loop);
    loop->is_now_stale = true;
}

/* --- Life --- */

struct fl_loop *fl_loop_new(void)
{
    struct fl_loop *loop = calloc(1, sizeof *loop);

    if (loop == NULL)
        return NULL;
    if (uv_loop_init(&loop->uv) != 0) {
        free(loop);
        return NULL;
    }
    fl_list_init(&loop->hooks);
    loop->now_ms = read_clock_ms();
    loop->armed_ms = UINT64_MAX;
    uv_timer_init(&loop->uv, &loop->timer);
    uv_check_init(&loop->uv, &loop->check);
    uv_prepare_init(&loop->uv, &loop->prepare);
    loop->timer.data = loop->check.data = loop->prepare.data = loop;
    uv_check_start(&loop->check, on_check);
    uv_prepare_start(&loop->prepare, on_prepare);
    /* They serve others: by themselves they do not keep the loop alive. */
    uv_unref((uv_handle_t *)&loop->check);
    uv_unref((uv_handle_t *)&loop->prepare);
    return loop;
}

static void count_handle(uv_handle_t *handle, void *n)
{
    (void)handle;
    ++*(unsigned *)n;
}

/* What closes may have a last word to send, so that hooks and timers go on until all are closed. */
static void run_until_closed(struct fl_loop *loop)
{
    unsigned n;

    do {
        n = 0;
        uv_walk(&loop->uv, count_handle, &n);
    } while (n > 3 /* our own */ && (arm(loop), uv_run(&loop->uv, UV_RUN_ONCE) != 0));
}

void fl_loop_free(struct fl_loop *loop)
{
    if (loop == NULL)
        return;
    run_until_closed(loop);
    uv_close((uv_handle_t *)&loop->timer, NULL);
    uv_close((uv_handle_t *)&loop->check, NULL);
    uv_close((uv_handle_t *)&loop->prepare, NULL);
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    FL_REQUIRE(uv_loop_close(&loop->uv) == 0);
    fl_heap_deinit(&loop->timers);
    free(loop);
}

void fl_loop_run(struct fl_loop *loop)
{
    arm(loop); /* a timer that was set before keeps the loop alive by itself */
    uv_run(&loop->uv, UV_RUN_DEFAULT);
}

void fl_loop_stop(struct fl_loop *loop)
{
    uv_stop(&loop->uv);
}
