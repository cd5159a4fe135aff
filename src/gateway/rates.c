#include "gateway/rates.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/map.h"

/* In thousandths, so that a millisecond of a rate of one a second is a whole number. */
struct bucket {
    struct fl_list in_order; /* by last use */
    uint64_t hash;           /* stands for who: a collision of 64 keyed bits costs a share */
    uint64_t millis;         /* what it may take now */
    uint64_t filled_ms;      /* when it was last filled */
};

struct fl_rates {
    struct fl_rates_config config;
    struct fl_hash_key key;
    struct fl_map buckets;
    struct fl_list order; /* oldest use first */
};

struct fl_rates *fl_rates_new(const struct fl_rates_config *config, const uint64_t hash_key[2])
{
    struct fl_rates *rates = fl_xcalloc(1, sizeof *rates);

    rates->config = *config;
    rates->key = (struct fl_hash_key){hash_key[0], hash_key[1]};
    fl_list_init(&rates->order);
    return rates;
}

static void bucket_free(struct fl_rates *rates, struct bucket *bucket)
{
    fl_map_remove(&rates->buckets, bucket->hash, bucket);
    fl_list_remove(&bucket->in_order);
    free(bucket);
}

void fl_rates_free(struct fl_rates *rates)
{
    if (rates == NULL)
        return;
    FL_LIST_EACH(at, &rates->order)
    bucket_free(rates, FL_CONTAINER_OF(at, struct bucket, in_order));
    fl_map_deinit(&rates->buckets);
    free(rates);
}

static bool has_hash(const void *value, const void *key)
{
    return ((const struct bucket *)value)->hash == *(const uint64_t *)key;
}

static struct bucket *bucket_of(struct fl_rates *rates, uint64_t now_ms, uint64_t hash,
                                uint64_t full)
{
    struct bucket *bucket = fl_map_find(&rates->buckets, hash, has_hash, &hash);

    if (bucket != NULL) {
        fl_list_remove(&bucket->in_order);
        fl_list_append(&rates->order, &bucket->in_order);
        return bucket;
    }
    if (rates->buckets.len >= FL_RATES_BUCKETS_MAX)
        bucket_free(rates, FL_CONTAINER_OF(rates->order.next, struct bucket, in_order));
    bucket = fl_xcalloc(1, sizeof *bucket);
    bucket->hash = hash;
    bucket->millis = full;
    bucket->filled_ms = now_ms;
    fl_map_insert(&rates->buckets, hash, bucket);
    fl_list_append(&rates->order, &bucket->in_order);
    return bucket;
}

uint32_t fl_rates_take(struct fl_rates *rates, uint64_t now_ms, enum fl_rate_kind kind,
                       struct fl_str who)
{
    uint64_t rate = rates->config.per_s[kind], full = rate * 1000 * FL_RATES_BURST_S;
    struct bucket *bucket;
    uint64_t passed_ms;

    if (rate == 0)
        return 0;
    bucket = bucket_of(rates, now_ms,
                       fl_hash_mix64(fl_hash_siphash(rates->key, who.data, who.len) + kind), full);
    passed_ms = now_ms - bucket->filled_ms;
    bucket->filled_ms = now_ms;
    if (passed_ms >= 1000 * FL_RATES_BURST_S)
        bucket->millis = full;
    else
        bucket->millis += passed_ms * rate;
    if (bucket->millis > full)
        bucket->millis = full;
    if (bucket->millis < 1000)
        return (uint32_t)((1000 - bucket->millis + rate - 1) / rate);
    bucket->millis -= 1000;
    return 0;
}
