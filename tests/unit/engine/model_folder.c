/* model_folder.c - makes and removes the folder, and its small models. */
#include "tests/unit/engine/model_folder.h"

#include "base/core/own.h"
#include "engine/model/make_model.h"
#include "tests/unit/unit.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

char model_folder[] = "/tmp/muster-model-XXXXXX";

int model_folder_make(void **state)
{
    (void)state;
    return mkdtemp(model_folder) ? 0 : -1;
}

int model_folder_remove(void **state)
{
    (void)state;
    DIR *dir = opendir(model_folder);
    must(dir);
    for (const struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.') (void)unlinkat(dirfd(dir), e->d_name, 0);
    closedir(dir);
    return rmdir(model_folder);
}

const char *folder_at(const char *name)
{
    static char path[4][512];
    static unsigned turn;
    char *p = path[turn++ % 4];
    int len = snprintf(p, sizeof path[0], "%s/%s", model_folder, name);
    must(len > 0 && (size_t)len < sizeof path[0]);
    return p;
}

void folder_llama(const char *name, enum weight_type_id type, bool tied, uint64_t seed)
{
    const struct random_model m = { .arch = "llama",
                                    .width = 64,
                                    .layers = 2,
                                    .ff = 96,
                                    .heads = 4,
                                    .kv_heads = 2,
                                    .vocab = 40,
                                    .context = 64,
                                    .type = type,
                                    .tied = tied,
                                    .seed = seed };
    must(random_model_write(&m, folder_at(name), NULL, NULL) == 0);
}

struct gguf *folder_open(const char *name, struct gguf_file *file)
{
    struct err err = { { 0 } };
    struct gguf *g = NULL;
    if (gguf_file_open(folder_at(name), file, &err) < 0) fail_msg("%s", err.text);
    if (gguf_parse(&file->source, &g, &err) < 0) fail_msg("%s", err.text);
    return g;
}
