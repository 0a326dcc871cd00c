"""Three lines that start a server and a loop; then what they gave."""

import headrace

rows = 0
with headrace.serve("/test/train.yaml") as server:
    for images, _ in headrace.Loader(server.address, stream="train"):
        rows += len(images)
assert rows == 24, rows
