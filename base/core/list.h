/* list.h - intrusive doubly linked list: the node lives inside the object.
 *
 * Layer: base/core (libc). All inline. A list head is a node that links to itself; a node that
 * is on no list has next == NULL, so { 0 } is a valid unlinked node.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *next, *prev;
};

/* Through void *, because clang warns of a cast from char * to a type of larger alignment. */
#define CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#define LIST_EACH(head, node) \
    for (struct list *node = (head)->next; node != (head); node = node->next)

/* Allows `node` to be removed in the body. */
#define LIST_EACH_SAFE(head, node)                                                   \
    for (struct list *node = (head)->next, *list_next_ = node->next; node != (head); \
         node = list_next_, list_next_ = node->next)

static inline void list_init(struct list *head)
{
    head->next = head->prev = head;
}

static inline bool list_empty(const struct list *head)
{
    return head->next == head;
}

static inline bool list_linked(const struct list *node)
{
    return node->next != NULL;
}

static inline void list_insert_after(struct list *at, struct list *node)
{
    node->prev = at;
    node->next = at->next;
    at->next->prev = node;
    at->next = node;
}

static inline void list_push_back(struct list *head, struct list *node)
{
    list_insert_after(head->prev, node);
}

static inline void list_push_front(struct list *head, struct list *node)
{
    list_insert_after(head, node);
}

static inline void list_remove(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    node->next = node->prev = NULL;
}

/* Removes the first node and returns it; NULL when the list is empty. */
static inline struct list *list_pop_front(struct list *head)
{
    if (list_empty(head)) return NULL;
    struct list *node = head->next;
    list_remove(node);
    return node;
}
