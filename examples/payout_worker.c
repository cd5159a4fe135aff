/* A payout worker that settles one invoice, and only if it alone may.
 *
 *     payout_worker INV-55102
 *
 * The token goes with the write: should this process be stopped for half a minute between the two,
 * somebody else will have the lock by then, and the ledger refuses our lower token. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <fencelock/fencelock.h>

/* Where a real worker would do: UPDATE ledger ... WHERE token <= $token (see fence/). */
static void settle(const char *invoice, uint64_t token)
{
    printf("settled %s with token %" PRIu64 "\n", invoice, token);
}

int main(int argc, char **argv)
{
    const struct fl_acquire_options patient = {.wait_ms = 30000};
    struct fl_client *client = NULL;
    struct fl_lock *lock = NULL;
    struct fl_why why = {0};
    char name[128];

    if (argc != 2) {
        fprintf(stderr, "usage: payout_worker INVOICE\n");
        return 64;
    }
    snprintf(name, sizeof name, "payout/%s", argv[1]);
    if (fl_client_new(NULL, NULL, &client, &why) == 0 &&
        fl_acquire(client, name, &patient, &lock, &why) == 0) {
        if (fl_lock_valid(lock, 500)) /* half a second is what settling takes */
            settle(argv[1], fl_lock_token(lock));
        fl_release(lock, &why);
    }
    if (why.code != 0)
        fprintf(stderr, "%s\n", why.message);
    fl_lock_free(lock);
    fl_client_free(client);
    return why.code != 0;
}
