/* One of many schedulers leads. Start it on several hosts; kill the one that leads, and another
 * goes on with a higher token.
 *
 *     leader NAME [SECONDS]
 *
 * The work itself is one line a second here. What matters is that each piece of it asks first
 * whether the lease lasts long enough for it, and that a store would be given the token. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <fencelock/election.h>

static void begin_to_lead(void *ctx, struct fl_election *election, uint64_t token)
{
    (void)ctx, (void)election;
    printf("elected, token %" PRIu64 "\n", token);
    fflush(stdout);
}

static void stop_leading(void *ctx, struct fl_election *election, enum fl_lost_cause cause)
{
    (void)ctx, (void)election;
    printf("deposed: %s\n", fl_lost_cause_text(cause));
    fflush(stdout);
}

static void complain(void *ctx, struct fl_election *election, const struct fl_why *why)
{
    (void)ctx, (void)election;
    fprintf(stderr, "leader: %s; trying again\n", why->message);
}

int main(int argc, char **argv)
{
    const struct fl_election_options options = {
        .on_elected = begin_to_lead, .on_deposed = stop_leading, .on_trouble = complain};
    const struct fl_client_options who = {.name = argc > 1 ? argv[1] : NULL};
    int seconds = argc > 2 ? atoi(argv[2]) : 3600;
    struct fl_client *client = NULL;
    struct fl_election *election = NULL;
    struct fl_why why = {0};

    if (argc < 2) {
        fprintf(stderr, "usage: leader NAME [SECONDS]\n");
        return 64;
    }
    if (fl_client_new(NULL, &who, &client, &why) == 0 &&
        fl_election_new(client, "scheduler/leader", &options, &election, &why) == 0) {
        for (int i = 0; i < seconds; i++) {
            if (fl_election_leads(election, 500)) /* half a second is what a round takes */
                printf("scheduling with token %" PRIu64 "\n", fl_election_token(election));
            fflush(stdout);
            sleep(1);
        }
    }
    if (why.code != 0)
        fprintf(stderr, "leader: %s\n", why.message);
    fl_election_free(election); /* resigns: the next one need not wait for our lease to end */
    fl_client_free(client);
    return why.code != 0;
}
