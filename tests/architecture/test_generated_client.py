"""Test that the generated synchronous client is up to date."""

from berth.client import generate


def test_synchronous_client_matches_its_asynchronous_source() -> None:
    # If this fails, run: python -m berth.client.generate
    folder = generate.FOLDER / "sync"
    current = {
        file.name: file.read_text() for file in folder.glob("*.py") if file.name not in generate.HAND_WRITTEN
    }
    assert current == generate.generate_modules()
