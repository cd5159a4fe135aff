/* libfencelock over real sockets to a real server, with the n-th allocation of the whole process
 * failing, in whatever library it is made: for n = 0, 1, 2, ... until all goes well.
 *
 *     memory ENDPOINT
 *
 * Says for each kind of outcome how often it came; the exit code is 1 when memory was lost or an
 * outcome is none that fencelock.h promises. A crash is what it looks for, too. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#include <fencelock/fencelock.h>

#define CODES_MAX 64

/* ---- This program's malloc, which all libraries use ---- */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void __libc_free(void *memory);

static atomic_long fail_at = -1; /* this many allocations from now; negative: none fails */
static atomic_long live;

static bool fails_now(void)
{
    return atomic_load(&fail_at) >= 0 && atomic_fetch_sub(&fail_at, 1) == 0;
}

static void *counted(void *memory)
{
    if (memory != NULL)
        atomic_fetch_add(&live, 1);
    return memory;
}

void *malloc(size_t size)
{
    return fails_now() ? NULL : counted(__libc_malloc(size));
}

void *calloc(size_t count, size_t size)
{
    return fails_now() ? NULL : counted(__libc_calloc(count, size));
}

void *realloc(void *old, size_t size)
{
    if (fails_now())
        return NULL;
    return old == NULL ? counted(__libc_realloc(NULL, size)) : __libc_realloc(old, size);
}

void free(void *memory)
{
    if (memory != NULL)
        atomic_fetch_sub(&live, 1);
    __libc_free(memory);
}

/* libuv ends the process when its table of watched descriptors cannot grow. Nothing that we could
 * do would change that; it is said in src/client/README.md. */
static void *realloc_for_uv(void *old, size_t size)
{
    return old == NULL ? counted(__libc_realloc(NULL, size)) : __libc_realloc(old, size);
}

/* ---- What an application does ---- */

static void ignore_loss(void *ctx, struct fl_lock *lock, enum fl_lost_cause cause, const char *by,
                        const char *reason)
{
    (void)ctx, (void)lock, (void)cause, (void)by, (void)reason;
}

static int use(const char *endpoint, long n)
{
    struct fl_client_options options = {.ttl_ms = 1000, .timeout_ms = 1000, .on_lost = ignore_loss};
    struct fl_description *description = NULL;
    struct fl_listing *listing = NULL;
    struct fl_client *client = NULL;
    struct fl_lock *lock = NULL;
    struct fl_why why;
    char name[32];
    int r;

    snprintf(name, sizeof name, "memory/%ld", n); /* what an earlier turn lost expires in peace */
    atomic_store(&fail_at, n);
    r = fl_client_new(endpoint, &options, &client, &why);
    if (r == 0)
        r = fl_acquire(client, name, NULL, &lock, &why);
    if (r == 0)
        r = fl_describe(client, name, false, 3, &description, &why);
    if (r == 0)
        r = fl_list_names(client, "memory/", NULL, 3, &listing, &why);
    if (r == 0)
        r = fl_release(lock, &why);
    fl_description_free(description);
    fl_listing_free(listing);
    fl_lock_free(lock);
    fl_client_free(client);
    return r;
}

static bool is_promised(int code)
{
    return code == 0 || code == FL_E_NOMEM || code == FL_E_UNREACHABLE;
}

int main(int argc, char **argv)
{
    unsigned seen[CODES_MAX] = {0};
    long before, n;
    int r, bad = 0;

    if (argc != 2)
        return 2;
    uv_replace_allocator(malloc, realloc_for_uv, calloc, free);
    r = use(argv[1], -1); /* what libraries keep for good, they have after this */
    for (n = 0; r == 0 || n == 0 || atomic_load(&fail_at) < 0; n++) {
        before = atomic_load(&live);
        r = use(argv[1], n);
        seen[-r < CODES_MAX ? -r : CODES_MAX - 1]++;
        if (!is_promised(r) || atomic_load(&live) > before) {
            printf("allocation %ld fails: %s (%d), %ld allocations are lost\n", n, fl_code_text(r),
                   r, atomic_load(&live) - before);
            bad = 1;
        }
        if (atomic_load(&fail_at) >= 0) /* there were fewer allocations than that */
            break;
    }
    atomic_store(&fail_at, -1);
    for (int i = 0; i < CODES_MAX; i++)
        if (seen[i] != 0)
            printf("%u times: %s\n", seen[i], fl_code_text(-i));
    printf("%ld allocations\n", n);
    return bad;
}
