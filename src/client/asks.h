/* The requests of a session: part of client/session.h, for its sibling files only. */
#ifndef FL_CLIENT_ASKS_H
#define FL_CLIENT_ASKS_H

#include "client/session.h"

void fl_session__emit(struct fl_session *s, const struct fl_session_effect *effect);

/* What the owner asks for. */
void fl_asks__acquire(struct fl_session *s, struct fl_ask *ask, uint64_t now_ms);
void fl_asks__release(struct fl_session *s, struct fl_ask *ask, uint64_t now_ms);
void fl_asks__cancel(struct fl_session *s, struct fl_ask *ask);

/* What the server answers. */
void fl_asks__acquired(struct fl_session *s, const struct fl_session_event *event);
void fl_asks__released(struct fl_session *s, uint64_t request_id);
void fl_asks__lost(struct fl_session *s, const struct fl_session_event *event);
void fl_asks__error(struct fl_session *s, const struct fl_session_event *event);

/* Sends all that is unanswered and was not sent on this stream. */
void fl_asks__send(struct fl_session *s, uint64_t now_ms);
/* The stream broke: nothing was sent on the next one yet. */
void fl_asks__unsend(struct fl_session *s);
/* After a resume: compares with what the server knows of the session. */
void fl_asks__reconcile(struct fl_session *s, const struct fl_session_known *known, size_t n);
/* Tells those whose answer is overdue. */
void fl_asks__give_up(struct fl_session *s, uint64_t now_ms);
/* Ends every wait with `why`; the rest stays. */
void fl_asks__refuse_all(struct fl_session *s, const struct fl_why *why);
/* The session is over: ends everything. With `is_quiet` (our own close) nobody is told of a loss.
 */
void fl_asks__end_all(struct fl_session *s, const struct fl_session_effect *loss,
                      const struct fl_why *why, bool is_quiet);

#endif
