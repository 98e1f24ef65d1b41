/* kube_price.c - copies the rows of prices and compares them with a node's labels. */
#include "controller/cloud/kube/kube_price.h"

#include "base/core/json_path.h"
#include "base/core/own.h"

#include <stdlib.h>

int kube_pairs_read(const struct config_texts *from, const char *where, struct kube_pair *ret,
                    uint32_t *ret_count, struct err *err)
{
    for (size_t i = 0; i < from->count; i++) {
        struct str value = from->items[i], name = str_cut(&value, '=');
        if (name.len == 0 || value.len == 0)
            return err_set(err, -EINVAL, "%s: '" STR_FMT "': want NAME=VALUE", where,
                           STR_ARG(from->items[i]));
        ret[i] = (struct kube_pair){ name, value };
    }
    *ret_count = (uint32_t)from->count;
    return 0;
}

static int no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "no memory for prices of nodes");
}

static int read_row(const struct kube_price_section *from, size_t index, struct arena *arena,
                    struct kube_price *ret, struct err *err)
{
    struct kube_pair *pair = arena_array(arena, from->labels.count, sizeof *pair);
    if (!pair) return no_memory(err);
    *ret = (struct kube_price){ .label = pair,
                                .device = from->device,
                                .price_h = from->price_h,
                                .spot_price_h = from->spot_price_h };
    int rc = kube_pairs_read(&from->labels, "labels", pair, &ret->label_count, err);
    if (rc < 0) return err_prefix(err, rc, "kubernetes.prices[%zu]", index);
    if (from->price_h < 0 && from->spot_price_h < 0)
        return err_set(err, -EINVAL,
                       "kubernetes.prices[%zu]: the row of " STR_FMT
                       " has no price; give price_per_hour or spot_price_per_hour",
                       index, STR_ARG(from->labels.items[0]));
    if (from->device.len > 0) ret->device = arena_str(arena, from->device);
    if (from->device.len > 0 && !ret->device.data) return no_memory(err);
    for (uint32_t i = 0; i < ret->label_count; i++) {
        pair[i].name = arena_str(arena, pair[i].name);
        pair[i].value = arena_str(arena, pair[i].value);
        if (!pair[i].name.data || !pair[i].value.data) return no_memory(err);
    }
    return 0;
}

int kube_prices_read(const struct config_records *rows, double default_h, struct arena *arena,
                     struct kube_prices *ret, struct err *err)
{
    const struct kube_price_section *from = rows->items;
    struct kube_price *row = arena_array(arena, rows->count, sizeof *row);
    if (!row) return no_memory(err);
    for (size_t i = 0; i < rows->count; i++) {
        int rc = read_row(&from[i], i, arena, &row[i], err);
        if (rc < 0) return rc;
    }
    *ret = (struct kube_prices){ row, (uint32_t)rows->count, default_h };
    return 0;
}

void kube_prices_drop(struct arena *arena)
{
    if (arena) arena_fini(arena);
    free(arena);
}

struct wanted {
    const struct kube_pair *pair;
    bool found;
};

static int look_at_label(void *ctx, struct str name, struct str value)
{
    struct wanted *w = ctx;
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (!str_eq(name, w->pair->name) || json_path_text(value, "", &text) < 0) return 0;
    w->found = str_eq(buf_view(&text), w->pair->value);
    return 1;
}

bool kube_labels_have(struct str labels, const struct kube_pair *pair)
{
    struct wanted w = { pair, false };
    (void)json_path_each_member(labels, "", look_at_label, &w);
    return w.found;
}

static bool fits(const struct kube_price *row, struct str labels)
{
    for (uint32_t i = 0; i < row->label_count; i++)
        if (!kube_labels_have(labels, &row->label[i])) return false;
    return true;
}

double kube_prices_find(const struct kube_prices *p, struct str labels, struct str device,
                        bool spot)
{
    for (uint32_t i = 0; i < p->count; i++) {
        const struct kube_price *row = &p->row[i];
        if (str_eq(row->device, device) && fits(row, labels))
            return spot ? row->spot_price_h : row->price_h;
    }
    return -1;
}
