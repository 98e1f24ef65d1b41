/* replay.c - holds main() of a fuzz target in builds without libFuzzer: it gives each file, and each
 * file of each folder, named on the command line to LLVMFuzzerTestOneInput once, in name order.
 *
 * So each check replays each seed, under whichever sanitizers the build has. A corpus that is
 * empty or absent is a failure: it would otherwise pass for ever without testing anything. */
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_BYTES_MAX ((size_t)64 << 20)
#define PATH_BYTES_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Returns 1 when the file was replayed, -1 when it could not be read. */
static int replay_file(const char *path, size_t len)
{
    if (len > FILE_BYTES_MAX) {
        fprintf(stderr, "replay: %s: larger than %zu bytes\n", path, FILE_BYTES_MAX);
        return -1;
    }
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "replay: %s: %s\n", path, strerror(errno));
        return -1;
    }
    /* Exactly as long as the input: a read past its end is past the allocation's. */
    uint8_t *data = malloc(len ? len : 1);
    size_t got = data ? fread(data, 1, len, file) : 0;
    fclose(file);
    if (data && got == len) LLVMFuzzerTestOneInput(data, len);
    free(data);
    if (got == len) return 1;
    fprintf(stderr, "replay: %s: could not be read whole\n", path);
    return -1;
}

static int replay(const char *path);

static int replay_folder(const char *path)
{
    struct dirent **entry;
    int count = scandir(path, &entry, NULL, alphasort);
    if (count < 0) {
        fprintf(stderr, "replay: %s: %s\n", path, strerror(errno));
        return -1;
    }
    int total = 0;
    for (int i = 0; i < count; i++) {
        char child[PATH_BYTES_MAX];
        int len = snprintf(child, sizeof child, "%s/%s", path, entry[i]->d_name);
        bool hidden = entry[i]->d_name[0] == '.';
        free(entry[i]);
        if (hidden || total < 0) continue;
        int done = len > 0 && (size_t)len < sizeof child ? replay(child) : -1;
        total = done < 0 ? -1 : total + done;
    }
    free(entry);
    return total;
}

/* Returns how many files were replayed, or -1. */
static int replay(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        fprintf(stderr, "replay: %s: %s\n", path, strerror(errno));
        return -1;
    }
    return S_ISDIR(st.st_mode) ? replay_folder(path) : replay_file(path, (size_t)st.st_size);
}

int main(int argc, char **argv)
{
    int total = 0;
    for (int i = 1; i < argc; i++) {
        int done = replay(argv[i]);
        if (done < 0) return 1;
        total += done;
    }
    printf("replay: %d inputs\n", total);
    if (total > 0) return 0;
    fprintf(stderr, "replay: no inputs: give at least one file or folder that holds one\n");
    return 1;
}
