"""Brain volumes aligned with elastix, as in the fMRI workflow, with falkon.Executor.

    align.py [VOLUMES]           default: 40

The volumes are a real EPI image that comes with nibabel, each moved by an amount
that is known and with noise of its own. A call aligns one of them with the first.
What elastix finds must be what the volume was moved by, the aligned volumes must
look like the first, and the same calls in this process must give the same numbers.
"""

import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

MOVED_MILLIMETRES = 6.0
"""Volumes are moved by at most so much along each axis."""
FOUND_WITHIN_MILLIMETRES = 0.5
NOISE = 0.02
"""Of the brightest voxel."""
PARAMETERS = """
(FixedImageDimension 3)
(MovingImageDimension 3)
(FixedInternalImagePixelType "float")
(MovingInternalImagePixelType "float")
(Registration "MultiResolutionRegistration")
(NumberOfResolutions 2)
(Transform "TranslationTransform")
(AutomaticTransformInitialization "false")
(Metric "AdvancedMeanSquares")
(ImageSampler "Random")
(NumberOfSpatialSamples 4000)
(NewSamplesEveryIteration "true")
(RandomSeed 1)
(Optimizer "AdaptiveStochasticGradientDescent")
(MaximumNumberOfIterations 150)
(Interpolator "LinearInterpolator")
(Resampler "DefaultResampler")
(ResampleInterpolator "FinalBSplineInterpolator")
(UseDirectionCosines "true")
(WriteResultImage "true")
(ResultImageFormat "nii")
(ResultImagePixelType "float")
"""


def first_volume():
    """The first volume of nibabel's example, as numbers, and how its voxels lie."""
    import nibabel
    import numpy

    path = os.path.join(os.path.dirname(nibabel.__file__), "tests", "data", "example4d.nii.gz")
    image = nibabel.load(path)
    sizes = image.header.get_zooms()[:3]
    return numpy.asarray(image.dataobj[..., 0], dtype="float32"), [float(size) for size in sizes]


def align(folder, number):
    """Moves the first volume and aligns it; returns by how many millimetres it was
    moved and found to be, and how alike both were before and after."""
    import nibabel
    import numpy

    volume, sizes = first_volume()
    draw = random.Random(number)
    voxels = [round(draw.uniform(-MOVED_MILLIMETRES, MOVED_MILLIMETRES) / size) for size in sizes]
    moved = numpy.roll(volume, voxels, axis=(0, 1, 2))
    noise = numpy.random.default_rng(number).normal(scale=NOISE * volume.max(), size=volume.shape)
    moved = moved + noise.astype("float32")
    own = os.path.join(folder, str(number))
    os.mkdir(own)
    lying = numpy.diag([*sizes, 1.0])
    nibabel.save(nibabel.Nifti1Image(volume, lying), os.path.join(own, "first.nii"))
    nibabel.save(nibabel.Nifti1Image(moved, lying), os.path.join(own, "moved.nii"))
    with open(os.path.join(own, "parameters.txt"), "w") as file:
        file.write(PARAMETERS)
    words = ["elastix", "-f", "first.nii", "-m", "moved.nii", "-p", "parameters.txt", "-out", "."]
    subprocess.run([*words, "-threads", "1"], cwd=own, check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(own, "TransformParameters.0.txt")) as file:
        found = re.search(r"^\(TransformParameters (.*)\)", file.read(), re.M)[1].split()
    aligned = numpy.asarray(nibabel.load(os.path.join(own, "result.0.nii")).dataobj)
    shutil.rmtree(own)
    known = [count * size for count, size in zip(voxels, sizes)]
    # The axes x and y of NIfTI and of elastix point in opposite directions.
    found = [sign * float(word) for sign, word in zip((-1, -1, 1), found)]
    alike = [float(numpy.corrcoef(volume.ravel(), one.ravel())[0, 1]) for one in (moved, aligned)]
    return known, found, alike


def main():
    volumes = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    if shutil.which("elastix") is None:
        sys.exit("fmri: elastix is needed (Debian: elastix)")
    workers = os.cpu_count() or 1
    numbers = range(1, volumes + 1)
    begin = time.perf_counter()
    # Falkon's import and start are in the clock.
    import falkon

    with tempfile.TemporaryDirectory() as folder, falkon.Executor(max_workers=workers) as executor:
        # Calls of a second or so travel alone.
        aligned = list(executor.map(align, [folder] * volumes, numbers, chunksize=1))
    taken = time.perf_counter() - begin
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        alone = [align(folder, number) for number in numbers]
        serial = time.perf_counter() - begin

    before, after = (min(alike[which] for _, _, alike in aligned) for which in (0, 1))
    print("%d volumes; correlation at least %.3f before, %.3f after" % (volumes, before, after))
    print("%.2f s with %d workers, %.2f s one after another" % (taken, workers, serial))
    overhead = 1 - serial / (taken * workers)
    print("share of the workers' time that was overhead: %.0f %%" % (100 * overhead))
    for (known, found, (was, is_)), one in zip(aligned, alone):
        apart = max(abs(here - there) for here, there in zip(known, found))
        assert apart < FOUND_WITHIN_MILLIMETRES, "moved by %r, found %r" % (known, found)
        assert is_ > was or not any(known), "less alike than before: %r" % ((was, is_),)
        assert (known, found) == (one[0], one[1]), "the same call found something else"
    print("all were found where they had been moved to, and the same one after another")


if __name__ == "__main__":
    main()
