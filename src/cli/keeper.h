/* The file that tells of a keeper process (acquire.c), for whoever writes or reads it. */
#ifndef FL_CLI_KEEPER_H
#define FL_CLI_KEEPER_H

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

/* A line that the keeper adds when it lost the lock: why, in quotes. */
#define KEEPER_LOST_KEY "FENCELOCK_LOST="

/* The keeper holds a write lock on its whole file as long as it lives. */
static inline struct flock keeper_file_lock(void)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
}

/* The process that keeps the file, or 0. */
static inline pid_t keeper_of(int file)
{
    struct flock lock = keeper_file_lock();

    if (fcntl(file, F_GETLK, &lock) < 0 || lock.l_type == F_UNLCK)
        return 0;
    return lock.l_pid;
}

#endif
