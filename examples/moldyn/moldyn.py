"""Short molecular dynamics with OpenMM, from many starts, with falkon.Executor.

    moldyn.py [STARTS]           default: 20

Each call takes the peptide that comes with OpenMM, relaxes it, gives its atoms
velocities of its own and follows them. Without friction the energy must stay what it
was, relaxing must lower it, and the calls are made again in this process
and must give the same numbers, to the last digit.
"""

import os
import sys
import time

STEPS = 200
STEP_PICOSECONDS = 0.00025
DRIFT_MAX = 0.02
"""How much of the kinetic energy the total may change by."""


def simulate(seed):
    """Energies (kJ/mol) as found, relaxed, at the start and at the end of the
    motion, and the kinetic energy at its start."""
    import openmm
    from openmm import app, unit

    place = os.path.join(os.path.dirname(app.__file__), "data", "test.pdb")
    model = app.Modeller(*_peptide(app.PDBFile(place)))
    field = app.ForceField("amber14-all.xml")
    system = field.createSystem(model.topology, nonbondedMethod=app.NoCutoff)
    integrator = openmm.VerletIntegrator(STEP_PICOSECONDS * unit.picoseconds)
    # One thread, and the same sums in the same order each time.
    platform = openmm.Platform.getPlatformByName("Reference")
    context = openmm.Context(system, integrator, platform)
    context.setPositions(model.positions)

    def energies():
        state = context.getState(getEnergy=True)
        kilojoules = unit.kilojoules_per_mole
        return [
            energy.value_in_unit(kilojoules)
            for energy in (state.getPotentialEnergy(), state.getKineticEnergy())
        ]

    found = energies()[0]
    openmm.LocalEnergyMinimizer.minimize(context, 1.0, 100)
    relaxed = energies()[0]
    context.setVelocitiesToTemperature(300 * unit.kelvin, seed)
    start, kinetic = sum(energies()), energies()[1]
    integrator.step(STEPS)
    return found, relaxed, start, sum(energies()), kinetic


def _peptide(pdb):
    """The molecule without the water around it."""
    from openmm import app

    model = app.Modeller(pdb.topology, pdb.positions)
    model.deleteWater()
    ions = [residue for residue in model.topology.residues() if len(list(residue.atoms())) == 1]
    model.delete(ions)
    return model.topology, model.positions


def main():
    starts = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    workers = os.cpu_count() or 1
    seeds = range(1, starts + 1)
    begin = time.perf_counter()
    # Falkon's import and start are in the clock.
    import falkon

    with falkon.Executor(max_workers=workers, preload=["openmm.app"]) as executor:
        ran = list(executor.map(simulate, seeds, chunksize=1))
    taken = time.perf_counter() - begin
    begin = time.perf_counter()
    alone = [simulate(seed) for seed in seeds]
    serial = time.perf_counter() - begin

    print("%d starts of %d steps" % (starts, STEPS))
    print("%.2f s with %d workers, %.2f s one after another" % (taken, workers, serial))
    overhead = 1 - serial / (taken * workers)
    print("share of the workers' time that was overhead: %.0f %%" % (100 * overhead))
    for found, relaxed, start, end, kinetic in ran:
        assert relaxed < found, "relaxing raised the energy from %r to %r" % (found, relaxed)
        assert abs(end - start) < DRIFT_MAX * kinetic, "energy went from %r to %r" % (start, end)
    assert len(set(ran)) == starts, "two starts did the same"
    for seed, there, here in zip(seeds, ran, alone):
        assert there == here, "start %d gave %r, and again %r" % (seed, there, here)
    print("energy was kept, and the same starts gave the same energies again")


if __name__ == "__main__":
    main()
