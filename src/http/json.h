/* Messages of the .proto files as JSON, by their descriptors: fields have the .proto's names (and
 * are also read in lowerCamelCase), enums their values' names; a number that JavaScript would
 * round is written as a string, and every number is read as either. */
#ifndef FL_HTTP_JSON_H
#define FL_HTTP_JSON_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

#include "gateway/arena.h"
#include "gateway/outcome.h"

/* Both give an object, owned by the caller, or NULL with the outcome set. */
json_t *fl_json_parse(struct fl_str text, struct fl_outcome *outcome);
/* "a=1&b=x%2Fy": every value a string. */
json_t *fl_json_from_query(struct fl_str query, struct fl_outcome *outcome);

/* In the arena. NULL: the outcome says which field is wrong, and how. */
ProtobufCMessage *fl_json_to_message(const json_t *object, const ProtobufCMessageDescriptor *type,
                                     struct fl_arena *arena, struct fl_outcome *outcome);
/* Owned by the caller. What has no value (an unset message, an enum's zero) is left out. */
json_t *fl_json_from_message(const ProtobufCMessage *message);

/* Never NULL: what is not UTF-8 is escaped. */
json_t *fl_json_text(const char *text);
json_t *fl_json_number(uint64_t value);

#endif
