"""Test that the generated synchronous client is up to date."""

from berth.client import generate


def test_synchronous_client_matches_its_asynchronous_source() -> None:
    # If this fails, run: python -m berth.client.generate
    folder = generate.FOLDER / "sync"
    current = {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*.py")}
    for name in generate.HAND_WRITTEN:
        del current[name]
    assert current == generate.generate_modules()
