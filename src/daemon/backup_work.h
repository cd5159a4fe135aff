/* What fencelockd does with a backup's file instead of serving: --restore, --check-backup. */
#ifndef FL_DAEMON_BACKUP_WORK_H
#define FL_DAEMON_BACKUP_WORK_H

#include "daemon/options.h"

/* The process's exit code. */
int fl_backup_work(const struct fl_options *options);

#endif
