"""t_image_twice.py - tests that two clones in two folders, built from nothing, give one image and one package.

It compiles the program twice, so it belongs to the long tests.
"""
import os
import shutil
import subprocess
import sys

import rig

EPOCH = "1700000000"


def clone(target):
    """Copies what git knows of the tree, with changes that are not committed."""
    rig.need("git")
    names = rig.run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=rig.SOURCE).stdout
    for name in names.split("\0"):
        source = os.path.join(rig.SOURCE, name)
        if name and os.path.isfile(source):
            os.makedirs(os.path.dirname(os.path.join(target, name)), exist_ok=True)
            shutil.copy(source, os.path.join(target, name))


def build(*words, cwd):
    done = subprocess.run(words, cwd=cwd, env=dict(os.environ, SOURCE_DATE_EPOCH=EPOCH), capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_two_clones_give_one_image_and_one_package():
    rig.need("dpkg", "ldd", "dpkg-shlibdeps", "cpack")
    with rig.folder() as place:
        one, two = os.path.join(place, "one"), os.path.join(place, "deeper/folder/two")
        for tree in (one, two):
            clone(tree)
        # Once with the build folder inside the tree, once outside; image and package come from one build.
        for tree, folder in ((one, os.path.join(one, "build-both")), (two, os.path.join(place, "build-of-two"))):
            build("scripts/image.sh", "--output", tree + ".tar", "--build", folder, cwd=tree)
            build("packaging/debian/build.sh", "--output", tree + ".deb", "--build", folder, cwd=tree)
        assert rig.read(one + ".tar.digest") == rig.read(two + ".tar.digest")
        rig.run("cmp", one + ".tar.spdx.json", two + ".tar.spdx.json")
        (first,), (second,) = os.listdir(one + ".deb"), os.listdir(two + ".deb")
        assert first == second
        rig.run("cmp", os.path.join(one + ".deb", first), os.path.join(two + ".deb", second))


if __name__ == "__main__":
    rig.main(sys.modules[__name__])
