/* What fencelockd is told: from a configuration file, then the environment, then the command line;
 * the later wins. Every option has one name: --peer-listen, FENCELOCK_PEER_LISTEN, peer_listen. */
#ifndef FL_DAEMON_OPTIONS_H
#define FL_DAEMON_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FL_PEERS_MAX 16
/* As many as node/meter.h takes. */
#define FL_PREFIXES_MAX 32

struct fl_options {
    uint64_t node_id;             /* 0: a gateway alone */
    char *restore, *check_backup; /* a backup's file: work on it, and end */
    uint64_t min_token;
    char *directory, *cluster, *listen, *peer_listen;
    char *http_listen; /* NULL: no HTTP port */
    struct fl_option_peer {
        uint64_t id;
        char *address;
    } peers[FL_PEERS_MAX];
    unsigned n_peers;
    char *metrics_prefixes[FL_PREFIXES_MAX];
    unsigned n_metrics_prefixes;
    unsigned election_timeout_ms;
    uint64_t snapshot_every;
    int log_level;
    bool bootstrap, join, gateway, check_config;
    bool help, version; /* asked for: nothing else counts */
};

void fl_options_init(struct fl_options *options);
void fl_options_deinit(struct fl_options *options);

/* Reads all three sources and checks that they make sense together. FL_E_INVALID with one sentence
 * in `why` (512 bytes) that names the option and its source. */
int fl_options_read(struct fl_options *options, int argc, char **argv, char **environment,
                    char *why);

/* "ID=HOST:PORT,..." into the peers; false when it is not of that form. */
bool fl_options_parse_peers(struct fl_options *options, const char *text);
/* The address of a peer, or NULL. */
const char *fl_options_peer(const struct fl_options *options, uint64_t id);

const char *fl_options_usage(void);

#endif
