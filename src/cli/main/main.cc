#include "cli/command.h"

int main(int argc, char** argv) { return zipage::cli::run_program(argc, argv); }
