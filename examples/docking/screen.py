"""Molecules docked to a protein with AutoDock Vina, with falkon.Executor.

    screen.py [MOLECULES]        default: 40

Each call takes a molecule of the National Cancer Institute's list, gives it a shape
(RDKit, Meeko) and docks it (`vina`) to 6-phosphogluconate dehydrogenase, the
protein that AutoDock is tested with. The scores must be those of the same calls in
this process, to the last digit, and every molecule must fit: around the
place where the protein's own ligand is, and better than not at all.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

PROTEIN = "/usr/share/autodock/Tests/1pgp_rec.pdbqt"
LIGAND = "/usr/share/autodock/Tests/1pgp_lig.pdbqt"
BOX_ANGSTROM = 20.0
EVALUATIONS = 2000
"""Of the scoring function: enough to compare how fast calls are, far too few for
chemistry, for which `--exhaustiveness 8` and no limit take minutes per molecule."""


def atoms(text):
    """Coordinates in a PDBQT file."""
    return [
        tuple(float(line[at : at + 8]) for at in (30, 38, 46))
        for line in text.splitlines()
        if line.startswith(("ATOM", "HETATM"))
    ]


def pocket():
    """The middle of the protein's own ligand."""
    with open(LIGAND) as file:
        places = atoms(file.read())
    return [sum(axis) / len(places) for axis in zip(*places)]


def shape(smiles):
    """A molecule's shape as PDBQT; `None` if it cannot be had."""
    from meeko import MoleculePreparation, PDBQTWriterLegacy
    from rdkit import Chem, RDLogger
    from rdkit.Chem import AllChem

    RDLogger.DisableLog("rdApp.*")
    molecule = Chem.MolFromSmiles(smiles)
    if molecule is None or len(Chem.GetMolFrags(molecule)) != 1:
        return None
    molecule = Chem.AddHs(molecule)
    if AllChem.EmbedMolecule(molecule, randomSeed=1) != 0:
        return None
    text, fine, _ = PDBQTWriterLegacy.write_string(MoleculePreparation().prepare(molecule)[0])
    return text if fine else None


def dock(protein, smiles):
    """The best score (kcal/mol) of a molecule and how far its middle is from that
    of the pocket along any axis (Å), or `None`."""
    text = shape(smiles)
    if text is None:
        return None
    middle = pocket()
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "molecule.pdbqt"), "w") as file:
            file.write(text)
        words = ["vina", "--receptor", protein, "--ligand", "molecule.pdbqt", "--out", "docked"]
        for axis, place in zip("xyz", middle):
            words += ["--center_" + axis, "%.3f" % place, "--size_" + axis, str(BOX_ANGSTROM)]
        words += ["--cpu", "1", "--seed", "42", "--exhaustiveness", "1"]
        words += ["--max_evals", str(EVALUATIONS)]
        subprocess.run(words, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(folder, "docked")) as file:
            best = file.read().partition("ENDMDL")[0]
    score = float(re.search(r"REMARK VINA RESULT: +(\S+)", best)[1])
    places = atoms(best)
    own = [sum(axis) / len(places) for axis in zip(*places)]
    apart = max(abs(here - there) for here, there in zip(own, middle))
    return score, apart


def protein_for_vina(folder):
    """The protein without what Vina does not take."""
    path = os.path.join(folder, "protein.pdbqt")
    with open(PROTEIN) as whole, open(path, "w") as atoms_alone:
        atoms_alone.writelines(line for line in whole if line.startswith(("ATOM", "HETATM")))
    return path


def molecules(count):
    import rdkit

    path = os.path.join(os.path.dirname(rdkit.__file__), "Data", "NCI", "first_5K.smi")
    with open(path) as file:
        return [line.split()[0] for line, _ in zip(file, range(count))]


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    if shutil.which("vina") is None or not os.path.exists(PROTEIN):
        sys.exit("docking: vina and a protein are needed (Debian: autodock-vina autodock-test)")
    smiles = molecules(count)
    workers = os.cpu_count() or 1
    preload = ["rdkit.Chem.AllChem", "meeko"]
    with tempfile.TemporaryDirectory() as folder:
        protein = protein_for_vina(folder)
        begin = time.perf_counter()
        # Falkon's import and start are in the clock.
        import falkon

        with falkon.Executor(max_workers=workers, preload=preload) as executor:
            docked = list(executor.map(dock, [protein] * len(smiles), smiles, chunksize=1))
        taken = time.perf_counter() - begin
        begin = time.perf_counter()
        alone = [dock(protein, one) for one in smiles]
        serial = time.perf_counter() - begin

    found = sorted((result, one) for result, one in zip(docked, smiles) if result)
    print("%d molecules, %d docked; the best:" % (len(smiles), len(found)))
    for (score, _), one in found[:3]:
        print("%8.3f kcal/mol  %s" % (score, one))
    print("%.2f s with %d workers, %.2f s one after another" % (taken, workers, serial))
    overhead = 1 - serial / (taken * workers)
    print("share of the workers' time that was overhead: %.0f %%" % (100 * overhead))
    assert docked == alone, "the same calls gave other scores"
    assert len(found) > len(smiles) / 2, "most molecules could not be docked"
    for (score, apart), one in found:
        assert score < 0, "%s does not fit: %r" % (one, score)
        assert apart < BOX_ANGSTROM / 2, "%s is %r Å away" % (one, apart)
    print("scores are those of the same calls one after another")


if __name__ == "__main__":
    main()
