/* Heat in a ring of cells, with halos exchanged at each step. Prints one line: the conductivity,
 * the number of processes, and a sum over the bits of all cells, which does not depend on how
 * many processes share them. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CELLS = 4096, STEPS = 100 };

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 2) {
        if (rank == 0) fprintf(stderr, "usage: heat NUMBER\n");
        MPI_Finalize();
        return 2;
    }
    double conductivity = atoi(argv[1]) % 500 / 1000.0;
    int first = (int)((long)CELLS * rank / size), end = (int)((long)CELLS * (rank + 1) / size);
    int count = end - first;
    double *cells = malloc((count + 2) * sizeof *cells), *next = malloc((count + 2) * sizeof *next);
    for (int at = 0; at < count; at++) cells[at + 1] = (first + at) % 97 == 0 ? 100.0 : 0.0;
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    for (int step = 0; step < STEPS; step++) {
        MPI_Sendrecv(&cells[1], 1, MPI_DOUBLE, left, 0, &cells[count + 1], 1, MPI_DOUBLE, right, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv(&cells[count], 1, MPI_DOUBLE, right, 1, &cells[0], 1, MPI_DOUBLE, left, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int at = 1; at <= count; at++)
            next[at] = cells[at] + conductivity * (cells[at - 1] - 2 * cells[at] + cells[at + 1]);
        double *swapped = cells;
        cells = next;
        next = swapped;
    }
    uint64_t sum = 0, all;
    for (int at = 1; at <= count; at++) {
        uint64_t bits;
        memcpy(&bits, &cells[at], sizeof bits);
        sum += bits * (uint64_t)(2 * (first + at) + 1);
    }
    MPI_Reduce(&sum, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%s %016llx %d\n", argv[1], (unsigned long long)all, size);
    free(cells);
    free(next);
    MPI_Finalize();
    return 0;
}
