"""`python -m tests.docs.walks`: prints the files of each walk, in order, with their processes."""

from pathlib import Path
from tempfile import TemporaryDirectory

from tests.docs.walks.walks import measure

with TemporaryDirectory(prefix="ccm-routes-") as directory:
    walks = measure(Path(directory))
for walk, files in walks.items():
    print(f"{walk.title}\n{len(files)} files; {walk.budget} at the most\n")
    for number, (file, processes) in enumerate(files.items(), 1):
        print(f"{number:4}  {file:44} {', '.join(processes)}")
    print()
