"""Test that the generated synchronous client and models are current."""

from berth.client import generate, model_generator


def test_synchronous_client_matches_its_asynchronous_source() -> None:
    """If this fails, run: python -m berth.client.generate"""
    folder = generate.FOLDER / "sync"
    current = {
        file.name: file.read_text() for file in folder.glob("*.py") if file.name not in generate.HAND_WRITTEN
    }
    assert current == generate.generate_modules()


def test_models_match_the_openapi_document() -> None:
    """Update the models with `python -m berth.client.generate`."""
    folder = generate.FOLDER / "models"
    current = {
        file.name: file.read_text()
        for file in folder.glob("*.py")
        if file.name not in model_generator.HAND_WRITTEN
    }
    assert current == generate.generate_models()
