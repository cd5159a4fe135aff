#include "test.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
#include "base/random.h"

static bool is_number(const void *value, const void *key)
{
    return *(const uint64_t *)value == *(const uint64_t *)key;
}

/* Whatever is put in and taken out, the map answers as a plain array does. */
static void map_agrees_with_an_array(void **state)
{
    enum { N = 600 };
    static uint64_t numbers[N];
    bool present[N] = {false};
    struct fl_map map = FL_MAP_INIT;
    struct fl_random random;

    (void)state;
    fl_random_init(&random, 1);
    for (uint64_t i = 0; i < N; i++)
        numbers[i] = i;
    for (int step = 0; step < 200000; step++) {
        uint64_t i = fl_random_below(&random, N);
        uint64_t hash = i % 97; /* collisions on purpose */

        assert_int_equal(fl_map_find(&map, hash, is_number, &i) != NULL, present[i]);
        if (present[i])
            assert_true(fl_map_remove(&map, hash, &numbers[i]));
        else
            fl_map_insert(&map, hash, &numbers[i]);
        present[i] = !present[i];
    }
    size_t count = 0, cursor = 0;
    while (fl_map_next(&map, &cursor) != NULL)
        count++;
    assert_int_equal(count, map.len);
    fl_map_deinit(&map);
}

/* A heap gives its nodes in order of key, and of arrival among equals. */
static void heap_sorts_and_keeps_arrival_order(void **state)
{
    enum { N = 500 };
    static struct fl_heap_node nodes[N];
    struct fl_heap heap = FL_HEAP_INIT;
    struct fl_random random;
    uint64_t last_key = 0, last_order = 0;

    (void)state;
    fl_random_init(&random, 2);
    for (int i = 0; i < N; i++)
        fl_heap_set(&heap, &nodes[i], fl_random_below(&random, 50));
    for (int i = 0; i < N; i += 3)
        fl_heap_set(&heap, &nodes[i], fl_random_below(&random, 50));
    for (int i = 0; i < N; i += 7)
        fl_heap_remove(&heap, &nodes[i]);
    for (struct fl_heap_node *node; (node = fl_heap_first(&heap)) != NULL;) {
        assert_true(node->key > last_key || (node->key == last_key && node->order >= last_order));
        last_key = node->key;
        last_order = node->order;
        fl_heap_remove(&heap, node);
        assert_false(fl_heap_contains(node));
    }
    fl_heap_deinit(&heap);
}

static void list_keeps_order_and_removal_is_repeatable(void **state)
{
    struct fl_list head, links[3];
    int seen = 0;

    (void)state;
    fl_list_init(&head);
    for (int i = 0; i < 3; i++)
        fl_list_append(&head, &links[i]);
    fl_list_remove(&links[1]);
    fl_list_remove(&links[1]);
    FL_LIST_EACH(link, &head)
    {
        assert_ptr_equal(link, seen == 0 ? &links[0] : &links[2]);
        seen++;
    }
    assert_int_equal(seen, 2);
}

/* Vectors of RFC 3720 B.4 and of the SipHash reference (1-3 variant, key 00..0f). */
static void hashes_match_their_published_vectors(void **state)
{
    uint8_t bytes[32] = {0};
    struct fl_hash_key key = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};

    (void)state;
    assert_int_equal(fl_crc32c(0, bytes, 32), 0x8a9136aau);
    for (uint8_t i = 0; i < 32; i++)
        bytes[i] = i;
    assert_int_equal(fl_crc32c(0, bytes, 32), 0x46dd794eu);
    assert_int_equal(fl_crc32c(fl_crc32c(0, bytes, 13), bytes + 13, 19), 0x46dd794eu);
    assert_true(fl_hash_siphash(key, bytes, 0) == 0xabac0158050fc4dcu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(map_agrees_with_an_array),
        cmocka_unit_test(heap_sorts_and_keeps_arrival_order),
        cmocka_unit_test(list_keeps_order_and_removal_is_repeatable),
        cmocka_unit_test(hashes_match_their_published_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
