"""Test that pods in containers start in the directory of their code."""

from tests.code.code_server import SECRET, CodeServer
from tests.contracts.pods import UID
from tests.images.stage import ImageStage, assert_nothing_is_left


def test_pod_with_an_image_starts_in_its_own_copy_of_the_code(stage: ImageStage, busybox: str) -> None:
    server = CodeServer()
    script = 'test "$PWD" = "$BERTH_CODE_DIR"; touch new; find . -type f | sort; ls -n src | tail -1'
    try:
        output = stage.output(
            "p-1", busybox, f"set -e; {script}", code_url=server.url, download_secret=SECRET
        )
    finally:
        server.close()
    *files, listed = output.splitlines()
    assert files == ["./empty", "./new", "./src/train.py"]
    assert listed.split()[2:4] == [str(UID), str(UID)]
    assert_nothing_is_left(stage)
