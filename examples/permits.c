/* At most N at a time, wherever they run: a pool of permits.
 *
 *     permits NAME N      holds one for as long as standard input is open
 *
 * A permit is a counted lock. Each holder has a token of its own; a store lets several tokens write
 * only if its rule is made for that (docs/fences.md). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <fencelock/fencelock.h>

/* The scope of this variable is that of the lock: every way out of it gives the lock back. */
static void free_lock(struct fl_lock **lock)
{
    fl_lock_free(*lock);
}
#define SCOPED_LOCK __attribute__((cleanup(free_lock))) struct fl_lock *

static int hold_one(struct fl_client *client, const char *name, uint32_t limit, struct fl_why *why)
{
    const struct fl_acquire_options options = {
        .mode = FL_COUNTED, .limit = limit, .wait_ms = 30000};
    SCOPED_LOCK permit = NULL;
    int r = fl_acquire(client, name, &options, &permit, why);

    if (r != 0)
        return r;
    printf("permit %" PRIu64 "\n", fl_lock_token(permit));
    fflush(stdout);
    while (getchar() != EOF) {
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct fl_client *client = NULL;
    struct fl_why why = {0};
    int r;

    if (argc != 3 || atoi(argv[2]) <= 0) {
        fprintf(stderr, "usage: permits NAME N\n");
        return 64;
    }
    r = fl_client_new(NULL, NULL, &client, &why);
    if (r == 0)
        r = hold_one(client, argv[1], (uint32_t)atoi(argv[2]), &why);
    if (r != 0)
        fprintf(stderr, "permits: %s\n", why.message);
    fl_client_free(client);
    return r != 0;
}
