"""A mosaic of the sky with Montage, with falkon.Executor.

    mosaic.py [TILES]            default: 5, so 25 tiles

Tiles of a made-up sky are written with astropy: each is turned a little and has a
background of its own, stars are where they are. Montage's programs project them,
compare those that overlap, find what backgrounds differ by, take that off and add
the tiles up; each program for one tile is a call. The mosaic must be the one that
the same programs make one after another, byte for byte; its stars must have the
light that they were given, and the backgrounds must be gone.
"""

import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

PROGRAMS = "mProjectPP mImgtbl mOverlaps mDiff mFitplane mBgModel mBackground mAdd".split()
TILE_PIXELS, STEP_PIXELS = 240, 180
PIXEL_DEGREES = 1 / 3600
CENTRE = (150.0, 2.0)
STARS_PER_TILE = 12
STAR_SIGMA_PIXELS, STAR_LIGHT = 2.0, 5000.0
NOISE = 1.0
BACKGROUND = 50.0
"""Tiles' backgrounds differ by about so much."""
FITTED = "a b c crpix1 crpix2 xmin xmax ymin ymax xcenter ycenter npixel rms boxx boxy boxwidth boxheight boxang"


def projection(size, centre, turned=0.0):
    from astropy.wcs import WCS

    wcs = WCS(naxis=2)
    wcs.wcs.ctype = ["RA---TAN", "DEC--TAN"]
    wcs.wcs.crval = centre
    wcs.wcs.crpix = [(size + 1) / 2] * 2
    wcs.wcs.cdelt = [-PIXEL_DEGREES, PIXEL_DEGREES]
    wcs.wcs.crota = [0.0, turned]
    wcs.wcs.equinox = 2000.0
    return wcs


def header_of(size, wcs):
    header = {"CTYPE1": "RA---TAN", "CTYPE2": "DEC--TAN", "EQUINOX": 2000.0}
    for axis in (0, 1):
        header["CRVAL%d" % (axis + 1)] = float(wcs.wcs.crval[axis])
        header["CRPIX%d" % (axis + 1)] = float(wcs.wcs.crpix[axis])
        header["CDELT%d" % (axis + 1)] = float(wcs.wcs.cdelt[axis])
    header["CROTA2"] = float(wcs.wcs.crota[1])
    return header


def make_sky(folder, tiles):
    """Writes the tiles and the header of the mosaic; returns where stars are in it."""
    import numpy
    from astropy.io import fits

    draw, noise = random.Random(1), numpy.random.default_rng(1)
    size = STEP_PIXELS * (tiles - 1) + TILE_PIXELS
    mosaic = projection(size, CENTRE)
    stars = [
        (draw.uniform(20, size - 20), draw.uniform(20, size - 20))
        for _ in range(STARS_PER_TILE * tiles * tiles)
    ]
    sky = mosaic.wcs_pix2world(numpy.array(stars), 0)
    down, across = numpy.mgrid[0:TILE_PIXELS, 0:TILE_PIXELS]
    for row in range(tiles):
        for column in range(tiles):
            middle = [[STEP_PIXELS * place + TILE_PIXELS / 2 for place in (column, row)]]
            centre = mosaic.wcs_pix2world(numpy.array(middle), 0)[0]
            wcs = projection(TILE_PIXELS, centre, turned=draw.uniform(-2, 2))
            level, *slopes = (draw.uniform(-1, 1) * BACKGROUND for _ in range(3))
            image = level + (slopes[0] * across + slopes[1] * down) / TILE_PIXELS
            image += noise.normal(scale=NOISE, size=image.shape)
            for x, y in wcs.wcs_world2pix(sky, 0):
                if -20 < x < TILE_PIXELS + 20 and -20 < y < TILE_PIXELS + 20:
                    apart = (across - x) ** 2 + (down - y) ** 2
                    peak = STAR_LIGHT / (2 * numpy.pi * STAR_SIGMA_PIXELS**2)
                    image += peak * numpy.exp(-apart / (2 * STAR_SIGMA_PIXELS**2))
            hdu = fits.PrimaryHDU(image.astype("float32"))
            hdu.header.update(header_of(TILE_PIXELS, wcs))
            hdu.writeto(os.path.join(folder, "raw", "tile-%02d-%02d.fits" % (row, column)))
    with open(os.path.join(folder, "template.hdr"), "w") as file:
        cards = {"SIMPLE": "T", "BITPIX": -64, "NAXIS": 2, "NAXIS1": size, "NAXIS2": size}
        for name, value in {**cards, **header_of(size, mosaic)}.items():
            shown = "'%s'" % value if isinstance(value, str) and value != "T" else value
            file.write("%-8s= %s\n" % (name, shown))
        file.write("END\n")
    return stars


def run(folder, words):
    """Runs one of Montage's programs; returns what it says."""
    ran = subprocess.run(words, cwd=folder, stdout=subprocess.PIPE, text=True)
    if ran.returncode != 0 or 'stat="ERROR"' in ran.stdout:
        raise RuntimeError("%s: %s" % (" ".join(words), ran.stdout.strip()))
    return ran.stdout


def rows_of(path):
    """The rows of a table as Montage writes it."""
    with open(path) as file:
        lines = [line for line in file if line.strip() and not line.startswith("\\")]
    # Columns are as wide as their names' row says; a cell may be empty.
    bars = [at for at, letter in enumerate(lines[0].rstrip()) if letter == "|"]
    places = list(zip(bars, bars[1:]))
    names = [lines[0][at + 1 : end].strip() for at, end in places]
    cells = ([line[at + 1 : end + 1].strip() for at, end in places] for line in lines)
    return [dict(zip(names, row)) for line, row in zip(lines, cells) if not line.startswith("|")]


def write_fits(path, rows):
    names = ["plus", "minus", *FITTED.split()]
    with open(path, "w") as file:
        file.write("|" + "|".join("%16s" % name for name in names) + "|\n")
        for row in rows:
            file.write(" " + " ".join("%16s" % word for word in row) + "\n")


def mosaic(folder, each):
    """Makes `mosaic.fits` of the tiles; `each` calls a program for many arguments.
    Returns how many programs were run."""

    def one(*words):
        run(folder, list(words))

    def many(commands):
        return list(each(run, [folder] * len(commands), commands))

    for name in ("projected", "differences", "corrected"):
        os.mkdir(os.path.join(folder, name))
    tiles = sorted(os.listdir(os.path.join(folder, "raw")))
    many([["mProjectPP", "raw/" + tile, "projected/" + tile, "template.hdr"] for tile in tiles])
    one("mImgtbl", "projected", "projected.tbl")
    one("mOverlaps", "projected.tbl", "overlaps.tbl")
    overlaps = rows_of(os.path.join(folder, "overlaps.tbl"))
    pairs = [
        ("projected/" + row["plus"], "projected/" + row["minus"], "differences/" + row["diff"])
        for row in overlaps
    ]
    many([["mDiff", *pair, "template.hdr"] for pair in pairs])
    fitted = many([["mFitplane", difference] for _, _, difference in pairs])
    rows = []
    for row, said in zip(overlaps, fitted):
        found = dict(re.findall(r"(\w+)=\"?([-+.\w]+)", said))
        if found.get("stat") == "OK":
            values = [found.get(name, "0") for name in FITTED.split()]
            rows.append([row["cntr1"], row["cntr2"], *values])
    write_fits(os.path.join(folder, "fits.tbl"), rows)
    one("mBgModel", "-i", "2000", "projected.tbl", "fits.tbl", "corrections.tbl")
    corrections = {row["id"]: row for row in rows_of(os.path.join(folder, "corrections.tbl"))}
    commands = []
    for row in rows_of(os.path.join(folder, "projected.tbl")):
        name = os.path.basename(row["fname"])
        plane = corrections.get(row["cntr"], {"a": "0", "b": "0", "c": "0"})
        words = ["mBackground", "projected/" + name, "corrected/" + name]
        commands.append([*words, plane["a"], plane["b"], plane["c"]])
    many(commands)
    one("mImgtbl", "corrected", "corrected.tbl")
    one("mAdd", "-e", "-p", "corrected", "corrected.tbl", "template.hdr", "mosaic.fits")
    return len(tiles) * 2 + len(pairs) * 2 + 5


def check(folder, stars):
    """How the mosaic's light compares with what the stars were given, and how far
    its sky is from flat, beside that of the tiles as they were."""
    import numpy
    from astropy.io import fits

    image = fits.getdata(os.path.join(folder, "mosaic.fits"))
    one = ("mAdd", "-e", "-p", "projected", "projected.tbl", "template.hdr", "uncorrected.fits")
    run(folder, list(one))
    before = fits.getdata(os.path.join(folder, "uncorrected.fits"))
    light = []
    for x, y in stars:
        alone = all((x - a) ** 2 + (y - b) ** 2 > 900 for a, b in stars if (a, b) != (x, y))
        column, row = round(x), round(y)
        around = image[row - 15 : row + 16, column - 15 : column + 16]
        if alone and around.shape == (31, 31) and numpy.isfinite(around).all():
            edge = numpy.concatenate([around[:3].ravel(), around[-3:].ravel()])
            light.append((around[6:-6, 6:-6] - numpy.median(edge)).sum() / STAR_LIGHT)
    flatness = []
    for one in (before, image):
        height, width = (length // 30 for length in one.shape)
        blocks = [
            numpy.nanmedian(one[30 * row : 30 * row + 30, 30 * column : 30 * column + 30])
            for row in range(height)
            for column in range(width)
        ]
        across, down = numpy.meshgrid(range(width), range(height))
        plane = numpy.column_stack([across.ravel(), down.ravel(), numpy.ones(len(blocks))])
        here = numpy.isfinite(blocks)
        blocks = numpy.array(blocks)[here]
        solved = numpy.linalg.lstsq(plane[here], blocks, rcond=None)[0]
        flatness.append(float((blocks - plane[here] @ solved).std()))
    return float(numpy.mean(light)), len(light), flatness


def main():
    tiles = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    if any(shutil.which(program) is None for program in PROGRAMS):
        sys.exit("montage: Montage's programs are needed (Debian: montage)")
    workers = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as top:
        together, alone = (os.path.join(top, name) for name in ("together", "alone"))
        os.makedirs(os.path.join(together, "raw"))
        stars = make_sky(together, tiles)
        shutil.copytree(together, alone)
        begin = time.perf_counter()
        # Falkon's import and start are in the clock.
        import falkon

        with falkon.Executor(max_workers=workers) as executor:
            programs = mosaic(together, lambda *of: executor.map(*of, chunksize=1))
        taken = time.perf_counter() - begin
        begin = time.perf_counter()
        mosaic(alone, map)
        serial = time.perf_counter() - begin
        same = []
        for folder in (together, alone):
            with open(os.path.join(folder, "mosaic.fits"), "rb") as file:
                same.append(file.read())
        light, counted, (before, after) = check(together, stars)

    print("%d tiles, %d programs were run" % (tiles * tiles, programs))
    print("%.2f s with %d workers, %.2f s one after another" % (taken, workers, serial))
    overhead = 1 - serial / (taken * workers)
    print("share of the workers' time that was overhead: %.0f %%" % (100 * overhead))
    print("light of %d stars: %.4f of what they were given" % (counted, light))
    print("sky is flat to %.2f; without correction %.2f" % (after, before))
    assert same[0] == same[1], "the mosaic is another than that of the programs one after another"
    assert abs(light - 1) < 0.02, "stars have lost or won light"
    assert after < before / 5, "backgrounds are still there"
    print("the mosaic is the one that the programs make one after another, byte for byte")


if __name__ == "__main__":
    main()
