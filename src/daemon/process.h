/* One process: a node with its gateway, or a gateway alone. Wiring only: the node runs on the loop
 * of the calling thread, the gateway on a loop and thread of its own, and mailboxes carry frames
 * between them. */
#ifndef FL_DAEMON_PROCESS_H
#define FL_DAEMON_PROCESS_H

#include "daemon/options.h"

/* Runs until SIGTERM or SIGINT, then drains. The process's exit code. */
int fl_process_run(const struct fl_options *options);

#endif
