/* The event loop of one thread: libuv, one timer heap on one uv_timer, and a list of connections
 * whose output is flushed once per turn (all that a turn produced goes out in one write: RPC.md
 * measured five times less CPU per call). */
#ifndef FL_NET_LOOP_H
#define FL_NET_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/heap.h"
#include "base/list.h"

struct fl_loop;

struct fl_loop *fl_loop_new(void);       /* NULL: out of memory or descriptors */
void fl_loop_free(struct fl_loop *loop); /* every handle must be closed; runs until they are */
/* Until fl_loop_stop(), or nothing is left. */
void fl_loop_run(struct fl_loop *loop);
void fl_loop_stop(struct fl_loop *loop); /* this thread only */
uv_loop_t *fl_loop_uv(struct fl_loop *loop);

/* CLOCK_BOOTTIME in milliseconds (it counts a suspend), read at the start of each turn. */
uint64_t fl_loop_now_ms(struct fl_loop *loop);
/* Reads the clock again. */
uint64_t fl_loop_update_now_ms(struct fl_loop *loop);

/* Room for one read, shared by all connections of the loop: valid until the callback returns. */
uint8_t *fl_loop_scratch(struct fl_loop *loop, size_t *ret_size);

/* Timers: the node lives in the owner; no allocation except the heap's array. */
struct fl_timer {
    struct fl_heap_node node;
    void (*fire)(struct fl_timer *timer, uint64_t now_ms);
};
#define FL_TIMER_INIT(callback) ((struct fl_timer){.fire = (callback)})
/* Fires once at `at_ms` (fl_loop_now_ms) or later; setting again moves it. FL_E_NOMEM. */
int fl_timer_set(struct fl_loop *loop, struct fl_timer *timer, uint64_t at_ms);
void fl_timer_clear(struct fl_loop *loop, struct fl_timer *timer);

/* Runs at the end of each turn in which it was marked: flushing of connections, of batches. */
struct fl_turn_hook {
    struct fl_list link;
    bool is_marked;
    void (*run)(struct fl_turn_hook *hook);
};
#define FL_TURN_HOOK_INIT(callback) ((struct fl_turn_hook){.run = (callback)})
void fl_turn_hook_mark(struct fl_loop *loop, struct fl_turn_hook *hook);
void fl_turn_hook_clear(struct fl_turn_hook *hook);

#endif
