/* The set of handles beside an array of flags. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/random.h"
#include "core/handle_set.h"

#define HANDLES 300000u

static bool is_in[HANDLES + 1];
static uint64_t bits; /* of the hash that count */

static uint64_t hash_of(const void *owner, uint32_t handle)
{
    (void)owner;
    return fl_hash_mix64(handle) & bits;
}

static bool is_it(const void *owner, uint32_t handle, const void *key)
{
    (void)owner;
    return handle == *(const uint32_t *)key;
}

static void toggle(struct fl_handle_set *set, uint32_t handle)
{
    if (is_in[handle])
        fl_handle_set_remove(set, handle);
    else
        fl_handle_set_add(set, handle);
    is_in[handle] = !is_in[handle];
}

static void compare(const struct fl_handle_set *set, uint32_t n)
{
    size_t len = 0;

    for (uint32_t handle = 1; handle <= n; handle++) {
        uint32_t found = fl_handle_set_find(set, hash_of(NULL, handle), is_it, &handle);

        assert_int_equal(found, is_in[handle] ? handle : 0);
        len += is_in[handle];
    }
    assert_int_equal(fl_handle_set_len(set), len);
}

/* With as many handles as `n`, of so many that could be: up, down and up again. */
static void go_up_and_down(uint32_t n)
{
    struct fl_handle_set set;
    struct fl_random random;

    fl_random_init(&random, n);
    memset(is_in, 0, sizeof is_in);
    fl_handle_set_init(&set, hash_of, NULL);
    for (int phase = 0; phase < 4; phase++) {
        for (uint32_t step = 0; step < 2 * n; step++) {
            uint32_t handle = 1 + (uint32_t)fl_random_below(&random, n);

            if (is_in[handle] != fl_random_chance(&random, phase % 2 == 0 ? 9 : 1, 10))
                toggle(&set, handle);
            if (step % (n / 2) == 0)
                compare(&set, n);
        }
    }
    compare(&set, n);
    fl_handle_set_deinit(&set);
}

static void what_is_added_is_found_until_it_is_removed(void **state)
{
    (void)state;
    bits = UINT64_MAX;
    go_up_and_down(40);
    go_up_and_down(1000);
    go_up_and_down(HANDLES);
}

/* Thousands of one home, further from it than a slot can tell. */
static void a_bad_hash_is_slow_and_right(void **state)
{
    (void)state;
    bits = 0;
    go_up_and_down(1000);
    bits = UINT64_C(3) << 62;
    go_up_and_down(2000);
}

static void a_set_that_was_large_is_small_again(void **state)
{
    struct fl_handle_set set;

    (void)state;
    bits = UINT64_MAX;
    memset(is_in, 0, sizeof is_in);
    fl_handle_set_init(&set, hash_of, NULL);
    for (uint32_t handle = 1; handle <= HANDLES; handle++)
        toggle(&set, handle);
    assert_in_range(fl_handle_set_memory(&set), HANDLES * 5, HANDLES * 15);
    for (uint32_t handle = 1; handle <= HANDLES; handle++)
        toggle(&set, handle);
    assert_in_range(fl_handle_set_memory(&set), 0, 4096);
    fl_handle_set_deinit(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_added_is_found_until_it_is_removed),
        cmocka_unit_test(a_bad_hash_is_slow_and_right),
        cmocka_unit_test(a_set_that_was_large_is_small_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
