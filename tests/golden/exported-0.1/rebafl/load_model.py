"""Load the model beside this file and ask it about an image."""

from pathlib import Path

from rebafl.deploy import load, predict

model = load(Path(__file__).parent)
# predict(model, [Path("image.png")]) gives one row of class probabilities an image
print(model.classes)
