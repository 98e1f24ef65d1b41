/* fake_seller.c - sells files: a program in the hook protocol for t_cloud_exec. An instance is a file in FOLDER with
 * its tags, named by its intent; each create that makes one appends a line to FOLDER/made.
 *
 *     fake_seller FOLDER MODE
 *
 * MODE: serve, or one of the defects below. */
#include "base/core/buf.h"
#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *folder, *mode;

static bool is(const char *name)
{
    return strcmp(mode, name) == 0;
}

static void say(const char *text)
{
    fputs(text, stdout);
}

static bool read_file(const char *path, struct buf *out)
{
    char bytes[4096];
    size_t n;
    FILE *f = fopen(path, "re");
    if (!f) return false;
    while ((n = fread(bytes, 1, sizeof bytes, f)) > 0)
        buf_append(out, bytes, n);
    fclose(f);
    return true;
}

static void append_line(const char *name, const char *text)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "ae");
    must(f);
    fprintf(f, "%s\n", text);
    must(fclose(f) == 0);
}

static void put_instance(struct json_writer *w, const char *intent, struct str tags)
{
    char path[PATH_MAX];
    struct stat st = { 0 };
    snprintf(path, sizeof path, "%s/%s", folder, intent);
    stat(path, &st);
    json_object(w);
    json_kv_text(w, "handle", intent);
    json_key(w, "tags");
    json_put_raw(w, tags);
    /* time() may be a tick behind the clock that the file system dates with. */
    time_t age_s = time(NULL) - st.st_mtime;
    json_kv_f64(w, "age_s", age_s > 0 ? (double)age_s : 0);
    if (is("stuck")) {
        json_kv_text(w, "state", "stuck");
        json_kv_text(w, "class", "capacity");
        json_kv_text(w, "why", "no host has room");
    }
    if (is("leaving")) json_kv_f64(w, "leaves_in_s", 30);
    if (is("more")) json_kv_text(w, "colour", "blue");
    json_object_end(w);
}

/* The file appears whole or not at all, and once. */
static void create(struct str call, struct json_writer *w)
{
    CLEANUP(buf_fini) struct buf intent = { 0 };
    CLEANUP(buf_fini) struct buf kept = { 0 };
    struct str tags;
    char path[PATH_MAX], draft[PATH_MAX];
    must(json_path_text(call, "intent", &intent) == 0 && json_path(call, "tags", &tags) == 0);
    snprintf(path, sizeof path, "%s/%s", folder, intent.data);
    snprintf(draft, sizeof draft, "%s/.draft-%d", folder, (int)getpid());
    FILE *f = fopen(draft, "we");
    must(f && fwrite(tags.data, 1, tags.len, f) == tags.len && fclose(f) == 0);
    if (link(draft, path) == 0) append_line("made", intent.data);
    unlink(draft);
    must(read_file(path, &kept));
    json_key(w, "instance");
    put_instance(w, intent.data, buf_view(&kept));
}

static void list(struct json_writer *w)
{
    char path[PATH_MAX];
    DIR *dir = opendir(folder);
    must(dir);
    json_key(w, "instances");
    json_array(w);
    for (struct dirent *e; (e = readdir(dir));) {
        CLEANUP(buf_fini) struct buf tags = { 0 };
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (strncmp(e->d_name, "i-", 2) == 0 && read_file(path, &tags))
            put_instance(w, e->d_name, is("tagless") ? STR("{}") : buf_view(&tags));
    }
    json_array_end(w);
    closedir(dir);
}

static void remove_one(struct str call, struct json_writer *w)
{
    CLEANUP(buf_fini) struct buf intent = { 0 };
    char path[PATH_MAX];
    must(json_path_text(call, "intent", &intent) == 0);
    snprintf(path, sizeof path, "%s/%s", folder, intent.data);
    unlink(path);
    json_kv_bool(w, "removed", true);
}

static void prices(struct json_writer *w)
{
    json_key(w, "prices");
    json_array(w);
    json_object(w);
    json_kv_text(w, "offer", "small");
    json_kv_f64(w, "per_hour", 0.25);
    json_kv_text(w, "hardware", "a file");
    json_object_end(w);
    json_array_end(w);
}

static void answer(struct str call)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    CLEANUP(buf_fini) struct buf op = { 0 };
    struct json_writer w;
    must(json_path_text(call, "call", &op) == 0);
    json_writer_init(&w, &out);
    json_object(&w);
    json_kv_u64(&w, "v", is("version") ? 2 : 1);
    if (strcmp(op.data, "create") == 0) create(call, &w);
    if (strcmp(op.data, "list") == 0) list(&w);
    if (strcmp(op.data, "remove") == 0) remove_one(call, &w);
    if (strcmp(op.data, "prices") == 0) prices(&w);
    if (is("more")) json_kv_text(&w, "colour", "blue");
    json_object_end(&w);
    must(out.rc == 0);
    fwrite(out.data, 1, out.len, stdout);
    say("\n");
    if (is("two_lines")) say("{}\n");
}

static void shout(struct str call)
{
    CLEANUP(buf_fini) struct buf user_data = { 0 };
    const char *token = getenv("SELLER_TOKEN");
    if (json_path_text(call, "user_data", &user_data) == 0) fprintf(stderr, "%s\n", user_data.data);
    fprintf(stderr, "token %s\n", token ? token : "none");
    for (int i = 0; i < 100000; i++)
        fprintf(stderr, "line %d of very many\n", i);
}

/* Leaves a child behind that holds the pipes, as an instance that was started carelessly does. */
static void leave_child(void)
{
    if (fork() != 0) return;
    setsid();
    sleep(20);
    _exit(0);
}

int main(int argc, char **argv)
{
    CLEANUP(buf_fini) struct buf call = { 0 };
    must(argc == 3);
    folder = argv[1];
    mode = argv[2];
    if (is("deaf")) {
        say("{\"removed\":true,\"instances\":[]}\n");
        return 0;
    }
    if (is("die_unread")) raise(SIGKILL);
    must(read_file("/dev/stdin", &call));
    if (is("hang")) {
        append_line("hangs", "1");
        sleep(600);
    }
    if (is("long"))
        for (int i = 0; i < 6 << 20; i++)
            putchar(' ');
    if (is("garbage")) say("instance made, have fun\n");
    if (is("half")) say("{\"instance\":{\"handle\":\"i-1\"");
    if (is("nothing")) return 0;
    if (is("wrong_class")) say("{\"error\":{\"class\":\"tired\",\"message\":\"later\"}}\n");
    if (is("capacity")) say("{\"error\":{\"class\":\"capacity\",\"message\":\"sold out\"}}\n");
    if (is("quota")) say("{\"error\":{\"class\":\"quota\"}}");
    if (is("wrong_type")) say("{\"instance\":{\"handle\":7},\"instances\":{}}\n");
    if (is("loud")) shout(buf_view(&call));
    if (is("child")) leave_child();
    static const char *const over[] = { "garbage",  "half",  "long",      "wrong_class",
                                        "capacity", "quota", "wrong_type" };
    for (size_t i = 0; i < sizeof over / sizeof *over; i++)
        if (is(over[i])) return 0;
    answer(buf_view(&call));
    fflush(stdout);
    if (is("die")) raise(SIGKILL);
    if (is("fail")) fprintf(stderr, "the disk is full\n");
    return is("fail") ? 3 : 0;
}
