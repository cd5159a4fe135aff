/* The requests of a session: part of client/session.h, for its sibling files only. */
#ifndef FL_CLIENT_BIDS_H
#define FL_CLIENT_BIDS_H

#include "client/session.h"

void fl_session__emit(struct fl_session *s, const struct fl_session_effect *effect);

/* What the owner wants. */
void fl_bids__acquire(struct fl_session *s, struct fl_bid *bid, uint64_t now_ms);
void fl_bids__release(struct fl_session *s, struct fl_bid *bid, uint64_t now_ms);
void fl_bids__cancel(struct fl_session *s, struct fl_bid *bid);
void fl_bids__cancel_all(struct fl_session *s);

/* What the server answers. */
void fl_bids__acquired(struct fl_session *s, const struct fl_session_event *event);
void fl_bids__released(struct fl_session *s, uint64_t request_id);
void fl_bids__lost(struct fl_session *s, const struct fl_session_event *event);
void fl_bids__error(struct fl_session *s, const struct fl_session_event *event);

/* Sends all that is unanswered and was not sent on this stream. */
void fl_bids__send(struct fl_session *s, uint64_t now_ms);
/* The stream broke: nothing was sent on the next one yet. */
void fl_bids__unsend(struct fl_session *s);
/* After a resume: compares with what the server knows of the session. */
void fl_bids__reconcile(struct fl_session *s, const struct fl_session_known *known, size_t n);
/* Tells those whose answer is overdue. */
void fl_bids__give_up(struct fl_session *s, uint64_t now_ms);
/* Ends every wait with `why`; the rest stays. */
void fl_bids__refuse_all(struct fl_session *s, const struct fl_why *why);
/* S3 and S4 of README.md: the one that does not hold, or NULL. */
const char *fl_bids__check(const struct fl_session *s);
/* The session is over: ends everything. With `is_quiet` (our own close) nobody is told of a loss.
 */
void fl_bids__end_all(struct fl_session *s, const struct fl_session_effect *loss,
                      const struct fl_why *why, bool is_quiet);

#endif
