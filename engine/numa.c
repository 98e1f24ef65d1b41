/* numa.c - reads the nodes that the process may use, and sets its memory policy (set_mempolicy(2)). */
#include "engine/numa.h"

#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/log.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STATUS_BYTES_MAX ((size_t)64 << 10)

const char *const numa_mode_names[] = { "auto", "interleave", "off", NULL };

static bool take_number(struct str *list, uint64_t *ret)
{
    size_t digits = 0;
    while (digits < list->len && list->data[digits] >= '0' && list->data[digits] <= '9')
        digits++;
    struct str number = str_of(list->data, digits);
    *list = str_of(list->data + digits, list->len - digits);
    return str_to_u64(number, ret) == 0;
}

int numa_nodes_parse(struct str list, struct numa_nodes *ret, struct err *err)
{
    struct numa_nodes nodes = { .count = 0 };
    for (struct str rest = list; rest.len > 0;) {
        struct str range = str_cut(&rest, ',');
        uint64_t first, last;
        bool good = take_number(&range, &first);
        last = first;
        if (good && range.len > 0 && range.data[0] == '-') {
            range = str_of(range.data + 1, range.len - 1);
            good = take_number(&range, &last);
        }
        if (!good || range.len > 0 || last < first)
            return err_set(err, -EINVAL, STR_FMT ": not a list of nodes, as 0-1,3", STR_ARG(list));
        if (last >= NUMA_NODES_MAX)
            return err_set(err, -E2BIG, "node %llu: the last that is known is %u",
                           (unsigned long long)last, NUMA_NODES_MAX - 1);
        for (uint32_t n = (uint32_t)first; n <= last; n++) {
            unsigned long bit = 1ul << n % NUMA_WORD_BITS;
            nodes.count += !(nodes.mask[n / NUMA_WORD_BITS] & bit);
            nodes.mask[n / NUMA_WORD_BITS] |= bit;
        }
    }
    if (nodes.count == 0) return err_set(err, -EINVAL, "an empty list of nodes");
    *ret = nodes;
    return 0;
}

/* Reads the nodes from which this process may take memory. */
static int nodes_allowed(struct numa_nodes *ret, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    int rc = file_read("/proc/self/status", STATUS_BYTES_MAX, &text, err);
    if (rc < 0) return rc;
    for (struct str rest = buf_view(&text); rest.len > 0;) {
        struct str line = str_cut(&rest, '\n'), name = str_cut(&line, ':');
        if (str_eq(name, STR("Mems_allowed_list")))
            return numa_nodes_parse(str_trim(line), ret, err);
    }
    return err_set(err, -ENOTSUP, "this kernel knows no nodes of memory");
}

/* Returns true if whoever started the process chose a policy, as numactl does. */
static bool has_policy(void)
{
    int policy = MPOL_DEFAULT;
    return syscall(SYS_get_mempolicy, &policy, NULL, 0ul, NULL, 0ul) == 0 && policy != MPOL_DEFAULT;
}

static int interleave(struct numa_nodes *nodes, struct err *err)
{
    /* The kernel reads one bit less than it is told. */
    if (syscall(SYS_set_mempolicy, MPOL_INTERLEAVE, nodes->mask, NUMA_NODES_MAX + 1ul) == 0)
        return 0;
    int rc = -errno;
    return err_set(err, rc, "set_mempolicy: %s%s", strerror(-rc),
                   rc == -EPERM ? " (containers forbid it without CAP_SYS_NICE)" : "");
}

int numa_spread(enum numa_mode mode, struct err *err)
{
    struct numa_nodes nodes = { .count = 0 };
    struct err why = { { 0 } };
    if (mode == NUMA_OFF || (mode == NUMA_AUTO && has_policy())) return 0;
    int rc = nodes_allowed(&nodes, &why);
    if (rc == 0 && mode == NUMA_AUTO && nodes.count == 1) return 0;
    if (rc == 0) rc = interleave(&nodes, &why);
    if (rc == 0) {
        log_event(LOG_INFO, "numa_spread", "nodes=%u", nodes.count);
        return (int)nodes.count;
    }
    if (mode == NUMA_INTERLEAVE) return err_set(err, rc, "--numa interleave: %s", why.text);
    log_event(LOG_WARN, "numa_kept", "reason=\"%s\"", why.text);
    return 0;
}
