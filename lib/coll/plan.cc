#include "lib/coll/plan.h"

namespace hetccl::coll {
namespace {

std::string blocks_text(const Plan& plan, Buffer buffer, int first, int count) {
  static constexpr const char* kNames[] = {"input", "output", "work", "temp"};
  std::string text = kNames[static_cast<int>(buffer)];
  text += '[' + std::to_string(first);
  if (count > 1) text += ".." + std::to_string((first + count - 1) % plan.blocks);
  return text + ']';
}

std::string operand_text(const Plan& plan, const Operand& operand, int count) {
  if (operand.peer < 0) return blocks_text(plan, operand.buffer, operand.first, count);
  return (operand.wide ? "wide message(" : "message(") + std::to_string(operand.peer) + ')';
}

std::string step_text(const Plan& plan, const Step& step) {
  const std::string mine = blocks_text(plan, step.buffer, step.blocks.first, step.blocks.count);
  if (step.kind == StepKind::kSend) {
    return "send " + mine + " to " + std::to_string(step.peer) + (step.fan_out ? " too" : "");
  }
  std::string text = (step.finalize ? "finalize " : "combine ") + mine + " <- ";
  for (uint32_t o = step.operands_begin; o < step.operands_end; ++o) {
    if (o > step.operands_begin) text += " + ";
    text += operand_text(plan, plan.operands[o], step.blocks.count);
  }
  return text;
}

}  // namespace

std::string to_text(const Plan& plan, size_t step) {
  std::string text = std::to_string(step) + ' ' + step_text(plan, plan.steps[step]);
  const uint32_t begin = plan.steps[step].dependencies_begin;
  for (uint32_t d = begin; d < plan.steps[step].dependencies_end; ++d) {
    text += d == begin ? "  after " : ",";
    text += std::to_string(plan.dependencies[d].step);
    if (plan.dependencies[d].whole) text += '*';
  }
  return text;
}

std::string to_text(const Plan& plan) {
  std::string text;
  for (size_t s = 0; s < plan.steps.size(); ++s) text += to_text(plan, s) + '\n';
  return text;
}

}  // namespace hetccl::coll
