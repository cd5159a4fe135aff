/* The ordered index beside a sorted array. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "core/internal.h"

#define NAMES_MAX 20000
#define TEXT_MAX  48

struct name {
    char text[TEXT_MAX];
    fl_handle handle; /* 0: not there */
};

static struct name names[NAMES_MAX];
static const uint64_t key[2] = {3, 5};

static struct fl_str str(const struct name *name)
{
    return fl_str_from(name->text);
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct name *)a)->text, ((const struct name *)b)->text);
}

/* Distinct and sorted; returns how many. Of few letters, so that one is often the beginning of
 * another. */
static size_t make_names(struct fl_random *random, size_t n)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        size_t len = 1 + fl_random_below(random, TEXT_MAX - 1);

        memset(&names[i], 0, sizeof names[i]);
        for (size_t at = 0; at < len; at++)
            names[i].text[at] = (char)('a' + fl_random_below(random, at < 30 ? 2 : 20));
    }
    qsort(names, n, sizeof names[0], compare);
    for (size_t i = 0; i < n; i++) {
        if (kept == 0 || strcmp(names[i].text, names[kept - 1].text) != 0)
            names[kept++] = names[i];
    }
    return kept;
}

static void toggle(struct fl_machine *m, struct name *name)
{
    if (name->handle == 0) {
        name->handle = fl_name_add(m, str(name));
    } else {
        fl_name_drop_if_idle(m, name->handle);
        name->handle = 0;
    }
}

/* All of them in order, sought and gone through. */
static void compare_all(const struct fl_machine *m, size_t n)
{
    fl_handle at = fl_order_seek(m, FL_STR(""), false), next = 0;

    assert_null(fl_order__fault(m));
    for (size_t i = 0; i < n; i++) {
        if (names[i].handle == 0)
            continue;
        assert_int_equal(at, names[i].handle);
        at = fl_order_next(m, at);
    }
    assert_int_equal(at, 0);
    for (size_t i = n; i-- > 0;) {
        assert_int_equal(fl_order_seek(m, str(&names[i]), true), next);
        if (names[i].handle != 0)
            next = names[i].handle;
        assert_int_equal(fl_order_seek(m, str(&names[i]), false), next);
    }
}

static void whatever_comes_and_goes_the_order_is_kept(void **state)
{
    struct fl_random random;
    size_t n;

    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct fl_machine *m = fl_machine_new(key);

        fl_random_init(&random, seed);
        n = make_names(&random, 1 + fl_random_below(&random, 6000));
        for (size_t step = 0; step < 4 * n; step++) {
            struct name *name = &names[fl_random_below(&random, n)];
            /* It grows, then shrinks. */
            bool wants_it = fl_random_chance(&random, step < 2 * n ? 3 : 1, 4);

            if ((name->handle != 0) != wants_it)
                toggle(m, name);
            if (step % 1000 == 0)
                compare_all(m, n);
        }
        compare_all(m, n);
        fl_machine_free(m);
    }
}

/* Thousands of leaves, and four levels; and then nothing. */
static void names_in_order_come_and_go(void **state)
{
    struct fl_random random;
    size_t n;

    (void)state;
    fl_random_init(&random, 7);
    for (int way = 0; way < 4; way++) {
        struct fl_machine *m = fl_machine_new(key);

        n = make_names(&random, NAMES_MAX);
        for (size_t i = 0; i < n; i++)
            toggle(m, &names[way & 1 ? n - 1 - i : i]);
        compare_all(m, n);
        for (size_t i = 0; i < n; i++) {
            toggle(m, &names[way & 2 ? n - 1 - i : i]);
            if (i % 5000 == 4999)
                compare_all(m, n);
        }
        compare_all(m, n);
        assert_int_equal(m->order.root, 0);
        fl_machine_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_comes_and_goes_the_order_is_kept),
        cmocka_unit_test(names_in_order_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
