/* t_gpus.c - tests the search for accelerators, their readings and the watch: against stand-ins of NVIDIA's library,
 * which are opened as the real one is, and against trees of files like sysfs's.
 *
 * The dynamic linker reads LD_LIBRARY_PATH when a program starts, so that this one starts itself again, once for each
 * stand-in. */
#include "agent/gpu_nvml.h"
#include "agent/gpu_sysfs.h"
#include "agent/gpu_watch.h"
#include "agent/local_disk.h"
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/log.h"
#include "base/wire/report.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64] = "/tmp/muster-gpus-XXXXXX";

static void write_file(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *at = path + strlen(folder) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = 0;
        mkdir(path, 0700);
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void remove_file(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    remove(path);
}

/* ---- sysfs ---- */

#define CARD(n, file) "sys/class/drm/card" #n "/device/" file

static void amd_gpus_are_found_in_sysfs(void **state)
{
    (void)state;
    char root[128];
    struct gpu_device d[WIRE_GPUS_MAX];
    struct gpu_sample s;
    snprintf(root, sizeof root, "%s/sys", folder);
    assert_int_equal(gpu_sysfs_find(root, d), 0); /* no such folder */
    write_file(CARD(0, "vendor"), "0x1a03\n");    /* the board's own screen */
    write_file(CARD(1, "vendor"), "0x1002\n");
    write_file(CARD(1, "device"), "0x74a1\n");
    write_file(CARD(1, "product_name"), "AMD Instinct MI300X OAM\n");
    write_file(CARD(1, "unique_id"), "8e1bb6d2f0a1c377\n");
    write_file(CARD(1, "mem_info_vram_total"), "206141652992\n");
    write_file(CARD(1, "mem_info_vram_used"), "1048576\n");
    write_file(CARD(1, "gpu_busy_percent"), "37\n");
    write_file(CARD(1, "hwmon/hwmon4/temp1_input"), "61000\n");
    write_file(CARD(1, "hwmon/hwmon4/power1_average"), "412000000\n");
    write_file(CARD(1, "ras/umc_err_count"), "ue: 2\nce: 90\n");
    write_file(CARD(1, "ras/gfx_err_count"), "ue: 1\nce: 0\nde: 4\n");
    write_file(CARD(1, "ras/features"), "feature mask: 0x7\n");
    write_file(CARD(9, "vendor"), "0x1002\n"); /* a function that tells next to nothing */
    write_file(CARD(9, "device"), "0x74b5\n");
    write_file(CARD(9, "mem_info_vram_total"), "oops\n");
    assert_int_equal(gpu_sysfs_find(root, d), 2);
    assert_string_equal(d[0].name, "AMD Instinct MI300X OAM");
    assert_string_equal(d[0].uuid, "8e1bb6d2f0a1c377");
    assert_string_equal(d[0].hardware, "mi300x");
    assert_true(d[0].memory_bytes == UINT64_C(206141652992));
    assert_string_equal(d[1].name, "AMD Instinct MI300X");
    assert_string_equal(d[1].card, "card9");
    assert_true(d[1].memory_bytes == 0);

    gpu_sysfs_read(root, &d[0], &s);
    assert_true(s.measured && s.memory_used_bytes == 1048576);
    assert_true(s.busy > 0.369 && s.busy < 0.371);
    assert_true(s.celsius > 60.9 && s.celsius < 61.1);
    assert_true(s.watts > 411.9 && s.watts < 412.1);
    assert_true(s.counters.ecc_known && s.counters.ecc_uncorrectable == 3);
    assert_false(s.counters.lost);
    gpu_sysfs_read(root, &d[1], &s);
    assert_false(s.measured || s.counters.ecc_known || s.counters.lost);
    remove_file(CARD(9, "vendor"));
    gpu_sysfs_read(root, &d[1], &s);
    assert_true(s.counters.lost);
}

static void lists_of_gpus_are_as_cudas(void **state)
{
    (void)state;
    static const struct {
        const char *use;
        uint32_t index;
        bool is;
    } rows[] = {
        { "", 5, true },
        { "0,2", 2, true },
        { "0, 2", 2, true },
        { "0,2", 1, false },
        { "GPU-11aa22", 9, true },
        { "GPU-11aa22bb,1", 1, true },
        { "GPU-33", 9, false },
        { "GPU-", 9, false }, /* too short to name one */
        { "GPU-99aa22", 9, false },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (gpu_is_used(str_from(rows[i].use), rows[i].index, "GPU-11aa22bb") != rows[i].is)
            fail_msg("'%s', %u", rows[i].use, rows[i].index);
}

/* ---- NVML ---- */

static void without_a_library_there_are_none(void **state)
{
    (void)state;
    struct nvml *n = NULL;
    struct err err = { 0 };
    assert_int_equal(nvml_open(&n, &err), -ENOENT);
    assert_non_null(strstr(err.text, "libnvidia-ml.so.1"));
}

static void a_driver_of_before_version_2_is_refused(void **state)
{
    (void)state;
    struct nvml *n = NULL;
    struct err err = { 0 };
    assert_int_equal(nvml_open(&n, &err), -ENOSYS);
    assert_non_null(strstr(err.text, "nvmlInit_v2"));
}

static void an_old_driver_gives_what_it_has(void **state)
{
    (void)state;
    struct nvml *n = NULL;
    struct err err = { 0 };
    struct gpu_sample s;
    uint32_t gpu, xid;
    write_file("nvml.gpus", "Tesla T4||15360|0\n");
    assert_int_equal(nvml_open(&n, &err), 0);
    assert_int_equal(nvml_count(n), 1);
    assert_string_equal(nvml_device(n, 0)->name, "Tesla T4");
    assert_string_equal(nvml_device(n, 0)->hardware, "t4");
    assert_true(nvml_device(n, 0)->memory_bytes == 0);
    assert_non_null(nvml_is_deaf(n));
    nvml_read(n, 0, &s);
    assert_false(s.measured || s.counters.ecc_known || s.counters.remap_known);
    assert_false(nvml_wait(n, 1, &gpu, &xid));
    nvml_free(n);
}

static void a_library_without_a_driver_says_so(void **state)
{
    (void)state;
    struct nvml *n = NULL;
    struct err err = { 0 };
    write_file("nvml.gpus", "");
    write_file("nvml.init", "9\n"); /* NVML_ERROR_DRIVER_NOT_LOADED */
    assert_int_equal(nvml_open(&n, &err), -ENODEV);
    assert_non_null(strstr(err.text, "nvmlInit_v2 answers 9"));
    remove_file("nvml.init");
    assert_int_equal(nvml_open(&n, &err), -ENODEV);
    assert_non_null(strstr(err.text, "0 GPUs"));
    assert_null(n);
}

#define TWO                                          \
    "NVIDIA H100 80GB HBM3|GPU-11aa22bb-0|81559|0\n" \
    "forbidden|GPU-2|81559|0\n"                      \
    "NVIDIA A100-SXM4-40GB\t\x01|GPU-33cc44dd-2|40960|1\n"

static void nvidias_gpus_are_found_and_read(void **state)
{
    (void)state;
    struct nvml *n = NULL;
    struct err err = { 0 };
    struct gpu_sample s;
    uint32_t gpu = 9, xid = 0;
    write_file("nvml.gpus", TWO);
    write_file("nvml.state", "0 used 2048\n0 busy 80\n0 celsius 66\n0 watts 512.5\n0 ecc 3\n"
                             "0 pending 1\n0 retired 4\n2 used 1\n2 failed 1\n2 pending 0\n");
    write_file("nvml.xids", "");
    if (nvml_open(&n, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(nvml_count(n), 2);
    assert_string_equal(nvml_device(n, 0)->hardware, "h100");
    assert_string_equal(nvml_device(n, 0)->uuid, "GPU-11aa22bb-0");
    assert_true(nvml_device(n, 0)->memory_bytes == UINT64_C(81559) << 20);
    assert_string_equal(nvml_device(n, 1)->name, "NVIDIA A100-SXM4-40GB");
    assert_int_equal(nvml_device(n, 1)->index, 2);
    assert_null(nvml_device(n, 1)->hardware); /* a smaller one than the table's */
    assert_true(nvml_device(n, 1)->mig && !nvml_device(n, 0)->mig);
    assert_null(nvml_is_deaf(n));

    nvml_read(n, 0, &s);
    assert_true(s.measured && s.memory_used_bytes == UINT64_C(2048) << 20);
    assert_true(s.busy > 0.79 && s.busy < 0.81 && s.celsius > 65 && s.watts > 512);
    assert_true(s.counters.ecc_known && s.counters.ecc_uncorrectable == 3);
    assert_true(s.counters.remap_known && s.counters.remap_pending && !s.counters.remap_failed);
    assert_true(s.counters.retired_known && s.counters.retired_pages == 4);
    nvml_read(n, 1, &s);
    assert_false(s.measured); /* its use is not told, as on a GPU in parts */
    assert_true(s.counters.remap_failed && !s.counters.ecc_known && !s.counters.lost);

    assert_false(nvml_wait(n, 1, &gpu, &xid));
    write_file("nvml.xids", "* 2 31\nanother 0 79\n* 0 48\n");
    assert_true(nvml_wait(n, 1, &gpu, &xid));
    assert_true(gpu == 1 && xid == 31);
    /* The second line is another process's. */
    assert_true(nvml_wait(n, 1, &gpu, &xid));
    assert_true(gpu == 0 && xid == 48);
    write_file("nvml.state", "0 lost 1\n");
    nvml_read(n, 0, &s);
    assert_true(s.counters.lost);
    nvml_free(n);
    remove_file("nvml.state");
}

/* ---- the watch ---- */

struct seen {
    struct loop *loop;
    struct gpu_watch *watch;
    struct loop_timer timer;
    uint32_t found, events, until;
    struct gpu_event last;
};

/* Stops the loop once the first GPU has been read. */
static void on_timer(void *arg)
{
    struct seen *s = arg;
    struct wire_gpu gpu[WIRE_GPUS_MAX];
    struct wire_fault fault[WIRE_FAULTS_MAX];
    struct agent_report r = { 0 };
    gpu_watch_fill(s->watch, gpu, fault, &r);
    if (r.gpu_count > 0 && r.gpus[0].measured)
        loop_stop(s->loop);
    else
        assert_int_equal(loop_timer_set(s->loop, &s->timer, loop_now_us(s->loop) + 10000), 0);
}

static void on_found(void *arg)
{
    struct seen *s = arg;
    s->found++;
    if (s->until == 0) loop_stop(s->loop);
}

static void on_event(void *arg, const struct gpu_event *e)
{
    struct seen *s = arg;
    s->last = *e;
    if (++s->events == s->until) loop_stop(s->loop);
}

static void open_watch(struct seen *s, const char *use, const char *root)
{
    struct err err = { 0 };
    const struct gpu_watch_config c = { .loop = s->loop,
                                        .sysfs = str_from(root),
                                        .use = str_from(use),
                                        .on_found = on_found,
                                        .on_event = on_event,
                                        .arg = s };
    if (gpu_watch_open(&c, &s->watch, &err) < 0) fail_msg("%s", err.text);
}

static void a_watch_tells_of_faults_in_the_loop(void **state)
{
    (void)state;
    struct seen s = { 0 };
    struct err err = { 0 };
    struct wire_gpu gpu[WIRE_GPUS_MAX];
    struct wire_fault fault[WIRE_FAULTS_MAX];
    struct agent_report r = { 0 };
    write_file("nvml.gpus", TWO);
    write_file("nvml.xids", "");
    write_file("nvml.state", "0 ecc 0\n0 used 1\n0 busy 0\n");
    assert_int_equal(loop_new(&s.loop, &err), 0);
    open_watch(&s, "0,GPU-33cc44", "/nowhere");
    assert_int_equal(loop_run(s.loop), 0);
    assert_int_equal(s.found, 1);
    assert_int_equal(gpu_watch_count(s.watch), 2);
    s.until = 2;
    write_file("nvml.xids", "* 0 13\n* 0 79\n");
    assert_int_equal(loop_run(s.loop), 0);
    assert_int_equal(s.last.action, GPU_BROKEN);
    gpu_watch_fill(s.watch, gpu, fault, &r);
    assert_int_equal(r.gpu_count, 2);
    assert_true(str_eq(r.gpus[0].hardware, STR("h100")) && r.gpus[1].mig);
    assert_int_equal(r.machine, MACHINE_BROKEN);
    assert_true(str_eq(r.machine_code, STR("xid_79")));
    assert_int_equal(r.fault_count, 2);
    assert_true(gpu_watch_silent_us(s.watch) == 0);
    gpu_watch_close(s.watch);

    /* Faults of a GPU that the engine does not use are nobody's business here. */
    write_file("nvml.xids", "* 0 79\n* 2 64\n");
    struct seen other = { .loop = s.loop, .until = 1 };
    open_watch(&other, "2", "/nowhere");
    assert_int_equal(loop_run(s.loop), 0);
    assert_string_equal(other.last.code, "xid_64");
    assert_int_equal(gpu_watch_health(other.watch)->verdict, MACHINE_FAILING);
    gpu_watch_close(other.watch);
    loop_free(s.loop);
}

static void a_watch_of_sysfs_counts_errors(void **state)
{
    (void)state;
    struct seen s = { 0 };
    struct err err = { 0 };
    char root[128];
    snprintf(root, sizeof root, "%s/sys", folder);
    write_file(CARD(1, "ras/umc_err_count"), "ue: 2\nce: 90\n");
    assert_int_equal(loop_new(&s.loop, &err), 0);
    open_watch(&s, "0", root);
    assert_int_equal(loop_run(s.loop), 0);
    s.until = 1;
    s.timer = (struct loop_timer){ .fn = on_timer, .arg = &s };
    on_timer(&s);
    assert_int_equal(loop_run(s.loop), 0); /* the first reading is the past */
    assert_int_equal(s.events, 0);
    write_file(CARD(1, "ras/umc_err_count"), "ue: 3\nce: 90\n");
    assert_int_equal(loop_run(s.loop), 0);
    assert_int_equal(s.last.action, GPU_RESTART);
    assert_string_equal(s.last.code, "ecc");
    gpu_watch_close(s.watch);
    loop_free(s.loop);
}

static void a_watch_without_gpus_ends_at_once(void **state)
{
    (void)state;
    struct seen s = { 0 };
    struct err err = { 0 };
    assert_int_equal(loop_new(&s.loop, &err), 0);
    open_watch(&s, "", "/nowhere");
    assert_int_equal(gpu_watch_count(s.watch), 0);
    gpu_watch_close(s.watch);
    assert_int_equal(gpu_watch_count(NULL), 0);
    gpu_watch_close(NULL);
    loop_free(s.loop);
}

/* ---- disks of the machine's own ---- */

static void only_own_disks_are_own(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        bool own;
    } rows[] = {
        { "Amazon EC2 NVMe Instance Storage", true },
        { "Amazon EC2 NVMe Instance Storage        ", true },
        { "Amazon Elastic Block Store", false },
        { "nvme_card", true },
        { "nvme_card12", true },
        { "nvme_card-pd", false },
        { "Microsoft NVMe Direct Disk v2", true },
        { "MSFT NVMe Accelerator v1.0", false },
        { "Samsung SSD 980", false },
        { "", false },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (local_disk_is_own(str_from(rows[i].model)) != rows[i].own)
            fail_msg("%s", rows[i].model);
}

#define BLOCK(disk, file) "sys/class/block/" disk "/" file
#define EC2 "Amazon EC2 NVMe Instance Storage\n"

static void a_mounted_disk_is_found(void **state)
{
    (void)state;
    char root[128], mounts[128], text[1024];
    struct local_disks d;
    snprintf(root, sizeof root, "%s/sys", folder);
    snprintf(mounts, sizeof mounts, "%s/mountinfo", folder);
    local_disks_find("/nowhere", "/nowhere", &d);
    assert_true(d.count == 0 && !d.folder[0]);
    write_file(BLOCK("nvme0n1", "device/model"), "Amazon Elastic Block Store\n");
    write_file(BLOCK("nvme1n1", "device/model"), EC2);
    write_file(BLOCK("nvme1n1", "size"), "1000\n");
    write_file(BLOCK("nvme10n1", "device/model"), EC2);
    write_file(BLOCK("nvme10n1", "size"), "3000\n");
    write_file(BLOCK("nvme2n1", "device/model"), EC2);
    write_file(BLOCK("nvme2n1", "size"), "2000\n");
    write_file(BLOCK("nvme2n1p1", "device/model"), EC2);
    write_file("one/x", "");
    write_file("two/x", "");
    snprintf(text, sizeof text,
             "22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw\n"
             "36 22 259:1 / %s/one rw shared:2 - ext4 /dev/nvme1n1 rw\n"
             "37 22 259:5 / %s/two rw shared:3 master:1 - xfs /dev/nvme2n1p1 rw\n"
             "38 22 259:9 / /nowhere\\040else rw - xfs /dev/nvme2n1p2 rw\nshort\n",
             folder, folder);
    write_file("mountinfo", text);
    local_disks_find(root, mounts, &d);
    assert_int_equal(d.count, 3);
    assert_int_equal(d.mounted, 2); /* the one of ten is not the one of one */
    assert_true(d.bytes == 2000 * 512);
    assert_string_equal(d.folder + strlen(folder), "/two");
}

/* Runs docs/clouds/local-disk.sh on files in place of disks, with the real mkfs and wipefs; only mount is ours. */
static void the_script_formats_what_is_empty_only(void **state)
{
    (void)state;
    char line[1024], name[32];
    if (system("PATH=$PATH:/usr/sbin:/sbin; command -v wipefs >/dev/null && command -v mkfs.ext4 "
               ">/dev/null"))
        skip();
    write_file("bin/mount", "#!/bin/sh\necho mount \"$@\" >> \"$MOUNTED\"\n");
    write_file(BLOCK("nvme3n1", "device/model"), "nvme_card-pd\n");
    write_file("mounted", "");
    for (int i = 0; i <= 10; i++) { /* a file for each disk */
        snprintf(name, sizeof name, "dev/nvme%dn1", i);
        write_file(name, "");
        snprintf(line, sizeof line, "truncate -s 4M %s/%s", folder, name);
        assert_int_equal(system(line), 0);
    }
    /* Somebody's data: a file system on 1, a swap space on 2 whose signature is not at its beginning. */
    snprintf(
        line, sizeof line,
        "export PATH=$PATH:/usr/sbin:/sbin; cd %s/dev && chmod +x ../bin/mount && mkfs.ext4 -q -L "
        "keep nvme1n1 && "
        "mkswap nvme2n1 >/dev/null && cat nvme1n1 nvme2n1 nvme0n1 nvme3n1 | sha256sum > ../before",
        folder);
    assert_int_equal(system(line), 0);
    snprintf(line, sizeof line,
             "PATH=%s/bin:$PATH:/usr/sbin:/sbin MOUNTED=%s/mounted DEV=%s/dev SYS=%s/sys "
             "docs/clouds/local-disk.sh %s/scratch > %s/said",
             folder, folder, folder, folder, folder, folder);
    assert_int_equal(system(line), 0);
    snprintf(line, sizeof line,
             "cd %s/dev && cat nvme1n1 nvme2n1 nvme0n1 nvme3n1 | sha256sum | cmp - ../before && "
             "test $(wc -l < ../mounted) = 1 && grep -q 'dev/nvme10n1 .*/scratch$' ../mounted",
             folder);
    assert_int_equal(system(line), 0);
    /* Again: now nothing is free. */
    snprintf(line, sizeof line,
             "PATH=%s/bin:$PATH:/usr/sbin:/sbin MOUNTED=%s/mounted DEV=%s/dev SYS=%s/sys "
             "docs/clouds/local-disk.sh %s/scratch > %s/said && cd %s/dev && "
             "grep -q 'is free' ../said && test $(wc -l < ../mounted) = 1 && "
             "grep -q 'nvme1n1: has .*ext4' ../said && grep -q 'nvme2n1: has .*swap' ../said && "
             "cat nvme1n1 nvme2n1 nvme0n1 nvme3n1 | sha256sum | cmp - ../before",
             folder, folder, folder, folder, folder, folder, folder);
    assert_int_equal(system(line), 0);
}

/* ---- the stand-ins ---- */

static int run_kind(const char *kind)
{
    const struct CMUnitTest none[] = {
        cmocka_unit_test(without_a_library_there_are_none),
        cmocka_unit_test(amd_gpus_are_found_in_sysfs),
        cmocka_unit_test(a_watch_of_sysfs_counts_errors),
        cmocka_unit_test(a_watch_without_gpus_ends_at_once),
        cmocka_unit_test(lists_of_gpus_are_as_cudas),
        cmocka_unit_test(only_own_disks_are_own),
        cmocka_unit_test(a_mounted_disk_is_found),
        cmocka_unit_test(the_script_formats_what_is_empty_only),
    };
    const struct CMUnitTest ancient[] = { cmocka_unit_test(
        a_driver_of_before_version_2_is_refused) };
    const struct CMUnitTest old[] = { cmocka_unit_test(an_old_driver_gives_what_it_has) };
    const struct CMUnitTest new[] = {
        cmocka_unit_test(a_library_without_a_driver_says_so),
        cmocka_unit_test(nvidias_gpus_are_found_and_read),
        cmocka_unit_test(a_watch_tells_of_faults_in_the_loop),
    };
    log_set_level(LOG_ERROR);
    if (strcmp(kind, "none") == 0) return cmocka_run_group_tests(none, NULL, NULL);
    if (strcmp(kind, "ancient") == 0) return cmocka_run_group_tests(ancient, NULL, NULL);
    if (strcmp(kind, "old") == 0) return cmocka_run_group_tests(old, NULL, NULL);
    return cmocka_run_group_tests(new, NULL, NULL);
}

static int start_again(const char *self, const char *kind, const char *libraries)
{
    char path[4096];
    int status = 1;
    snprintf(path, sizeof path, "%s/%s", libraries, kind);
    pid_t pid = fork();
    if (pid == 0) {
        setenv("LD_LIBRARY_PATH", path, 1);
        setenv("FAKE_NVML", folder, 1);
        execl(self, self, kind, folder, (char *)NULL);
        _exit(127);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    static const char *const kinds[] = { "none", "ancient", "old", "new" };
    const char *libraries = getenv("FAKE_NVML_LIBS");
    int failed = 0;
    if (argc == 3) {
        snprintf(folder, sizeof folder, "%s", argv[2]);
        return run_kind(argv[1]);
    }
    if (!libraries || !mkdtemp(folder)) {
        fprintf(stderr, "FAKE_NVML_LIBS names no folder, or there is no room in /tmp\n");
        return 1;
    }
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        failed |= start_again("/proc/self/exe", kinds[i], libraries);
    char line[128];
    snprintf(line, sizeof line, "rm -rf %s", folder);
    return failed | (system(line) != 0);
}
