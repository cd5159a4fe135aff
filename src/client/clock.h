/* The clock of leases: CLOCK_BOOTTIME, which also counts while the machine sleeps, and which nobody
 * can set. */
#ifndef FL_CLIENT_CLOCK_H
#define FL_CLIENT_CLOCK_H

#include <stdint.h>

uint64_t fl_client_now_ms(void);

#endif
