/* A node that is a whole cluster: the real judgement and lock state over a log that commits at
 * once. Frames for gateways are queued until solo_pump(), since nothing may call back in an effect.
 */
#ifndef FL_TESTS_UNIT_SOLO_NODE_H
#define FL_TESTS_UNIT_SOLO_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct solo;

typedef void (*solo_receive)(void *ctx, const void *data, size_t len);

/* One link, over which `receive` gets the frames. */
struct solo *solo_new(uint64_t now_ms, solo_receive receive, void *ctx);
void solo_free(struct solo *solo);
/* A frame from the gateway; taken in at the next pump. */
void solo_send(struct solo *solo, const void *data, size_t len);
/* Until nothing moves any more. */
void solo_pump(struct solo *solo, uint64_t now_ms);
/* Steps down (it answers NOT_LEADER until it is elected again), or leads again in a new term. */
void solo_set_leader(struct solo *solo, uint64_t now_ms, bool is_leader);

#endif
