/* An intrusive doubly linked list: the link lives in the element, so adding and removing allocate
 * nothing and take constant time. A list does not own its elements. */
#ifndef FL_BASE_LIST_H
#define FL_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct fl_list {
    struct fl_list *prev, *next; /* a head points to itself when empty */
};

static inline void fl_list_init(struct fl_list *head)
{
    head->prev = head->next = head;
}

static inline bool fl_list_is_empty(const struct fl_list *head)
{
    return head->next == head;
}

/* Also right for a link that was initialised and is in no list. */
static inline bool fl_list_is_linked(const struct fl_list *link)
{
    return link->next != NULL && link->next != link;
}

static inline void fl_list_append(struct fl_list *head, struct fl_list *link)
{
    link->prev = head->prev;
    link->next = head;
    head->prev->next = link;
    head->prev = link;
}

static inline void fl_list_prepend(struct fl_list *head, struct fl_list *link)
{
    fl_list_append(head->next, link);
}

/* Safe to repeat. */
static inline void fl_list_remove(struct fl_list *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    fl_list_init(link);
}

/* The first link, or NULL. */
static inline struct fl_list *fl_list_first(const struct fl_list *head)
{
    return fl_list_is_empty(head) ? NULL : head->next;
}

/* `link` may be removed inside the loop, nothing else. */
#define FL_LIST_EACH(link, head)                                                                   \
    for (struct fl_list *link = (head)->next, *link##_next = link->next; link != (head);           \
         link = link##_next, link##_next = link->next)

#endif
